"""What is known of a request before its route is: its id, address, language and path as it was sent."""

from dataclasses import dataclass
from typing import Any

from starlette.types import Scope

from mustit_pipeline.api.languages import Language

KEY = "mustit.request"


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """One request, for errors, logs and the audit log."""

    request_id: str
    language: Language
    path: str
    address: str | None


def remember(scope: Scope, request: RequestInfo) -> None:
    """Keep it with the request."""
    state: dict[str, Any] = scope.setdefault("state", {})
    state[KEY] = request


def info(scope: Scope) -> RequestInfo:
    """What `remember` has kept."""
    return scope["state"][KEY]
