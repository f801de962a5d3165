"""Every operation of the OpenAPI document, with a request that it would understand."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI

# Values for paths, well-formed and of nothing that exists.
PLACES = {
    "sellerId": "no-such-seller",
    "id": "00000000-0000-4000-8000-000000000000",
    "itemNo": "1",
    "rawId": "1",
    "outboxId": "00000000-0000-4000-8000-000000000000",
    "keyId": "000000000000",
    "name": "no-such-user",
}


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path."""

    method: str
    path: str
    described: Mapping[str, Any]

    @property
    def url(self) -> str:
        """Its path with a value at each place."""
        return re.sub(r"{(\w+)}", lambda place: PLACES[place[1]], self.path)

    @property
    def takes_body(self) -> bool:
        return "requestBody" in self.described

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def operations(app: FastAPI) -> list[Operation]:
    """All of them."""
    paths: dict[str, dict[str, Any]] = app.openapi()["paths"]
    return [
        Operation(method.upper(), path, described)
        for path, methods in paths.items()
        for method, described in methods.items()
    ]
