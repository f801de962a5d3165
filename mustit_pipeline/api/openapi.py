"""The OpenAPI document as the API really answers: every error is a problem, and nothing else."""

from threading import Lock
from typing import Any

from fastapi import FastAPI

from mustit_pipeline.api.problems import MEDIA_TYPE

# FastAPI describes its own answer to a request that it cannot read; ours is a problem with status 400.
UNUSED = ("HTTPValidationError", "ValidationError")


def install(app: FastAPI) -> None:
    """Let the application describe itself so."""
    described, making = app.openapi, Lock()

    def document() -> dict[str, Any]:
        # It takes most of a second, once: requests ask for it in a thread, and find it whole.
        with making:
            if app.openapi_schema is None:
                _correct(described())
            return described()

    app.openapi = document


def _correct(document: dict[str, Any]) -> None:
    for name in UNUSED:
        document["components"]["schemas"].pop(name, None)
    for methods in document["paths"].values():
        for operation in methods.values():
            responses = operation["responses"]
            if MEDIA_TYPE not in responses.get("422", {}).get("content", {}):
                responses.pop("422", None)
            for response in responses.values():
                if MEDIA_TYPE in response.get("content", {}):
                    response["content"] = {MEDIA_TYPE: response["content"][MEDIA_TYPE]}
