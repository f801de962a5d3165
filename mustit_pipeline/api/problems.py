"""Errors as RFC 9457 problem details: a code, a message in the client's language, and no more than it may know."""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import orjson
import structlog
from anyio.to_thread import run_sync
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException

from mustit_pipeline.api.languages import Language
from mustit_pipeline.api.requests import RequestInfo, info
from mustit_pipeline.domain.errors import DomainError, TooMany, Unauthorized, Unavailable, ValidationFailed
from mustit_pipeline.environment_failure import EnvironmentFailure
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import is_away

MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = 5
LONGEST_FIELD = 200

log = structlog.get_logger(__name__)


class FieldProblem(BaseModel):
    """What is wrong with one field."""

    field: str = Field(examples=["sellerId"])
    message: str = Field(examples=["Field required"])


class Problem(BaseModel):
    """The body of every error."""

    type: str = Field(examples=["about:blank"])
    title: str = Field(examples=["Not Found"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["There is no seller dmont: register it with `mustit seller add`"])
    instance: str = Field(examples=["/api/v1/sellers/dmont"])
    errorCode: str = Field(examples=["NOT_FOUND_SELLER"])  # noqa: N815
    message: str = Field(examples=["There is no seller dmont: register it with `mustit seller add`"])
    timestamp: str = Field(examples=["2026-11-17T00:00:00+00:00"])
    path: str = Field(examples=["/api/v1/sellers/dmont"])
    requestId: str = Field(examples=["5b0c7f0e9a1d4c0f8e1a2b3c4d5e6f70"])  # noqa: N815
    errors: list[FieldProblem]


class RequestRefused(ValidationFailed):
    """A request that cannot be read, with the fields at fault where they are known."""

    def __init__(self, code: str, *, korean: str, english: str, errors: list[FieldProblem] | None = None) -> None:
        super().__init__(code, korean=korean, english=english)
        self.errors = errors or []


# What pydantic finds, in Korean; for the rest there is a general word.
_KOREAN = {
    "missing": "필수 항목입니다",
    "extra_forbidden": "알 수 없는 항목입니다",
    "string_type": "문자열이어야 합니다",
    "int_type": "정수여야 합니다",
    "int_parsing": "정수여야 합니다",
    "bool_parsing": "true 또는 false여야 합니다",
    "bool_type": "true 또는 false여야 합니다",
    "string_too_long": "너무 깁니다",
    "string_too_short": "너무 짧습니다",
    "greater_than_equal": "값이 너무 작습니다",
    "less_than_equal": "값이 너무 큽니다",
    "json_invalid": "올바른 JSON이 아닙니다",
    "model_attributes_type": "Content-Type이 application/json인 JSON 객체여야 합니다",
    "string_pattern_mismatch": "형식에 맞지 않습니다",
    "uuid_parsing": "UUID여야 합니다",
    "enum": "허용되지 않는 값입니다",
    "literal_error": "허용되지 않는 값입니다",
    "datetime_from_date_parsing": "날짜와 시각이어야 합니다",
    "date_from_datetime_parsing": "날짜여야 합니다",
}
# In English these are its own words, where they help.
_ENGLISH = {"model_attributes_type": "Input should be a JSON object, sent as application/json"}


def install(app: FastAPI) -> None:
    """Answer every error of the application with a problem."""
    app.add_exception_handler(DomainError, _domain)
    app.add_exception_handler(EnvironmentFailure, _environment)
    app.add_exception_handler(SQLAlchemyError, _database)
    app.add_exception_handler(RequestValidationError, _unreadable)
    app.add_exception_handler(HTTPException, _http)


def problem(request: RequestInfo, error: DomainError) -> Response:
    """The answer to a known error."""
    headers: dict[str, str] = {}
    if isinstance(error, Unauthorized):
        headers["WWW-Authenticate"] = "Bearer"
    headers |= retry_after(error)
    fields = error.errors if isinstance(error, RequestRefused) else []
    return answer(request, error.status, error.code, error.message(request.language), headers=headers, errors=fields)


def retry_after(error: DomainError) -> dict[str, str]:
    """The header that says when to come back, where that may help."""
    if isinstance(error, TooMany):
        return {"Retry-After": str(error.retry_after)}
    return {"Retry-After": str(RETRY_SECONDS)} if isinstance(error, Unavailable) else {}


def answer(
    request: RequestInfo,
    status: int,
    code: str,
    message: str,
    *,
    headers: Mapping[str, str] | None = None,
    errors: list[FieldProblem] | None = None,
) -> Response:
    """A problem as a response."""
    body = Problem(
        type="about:blank",
        title=HTTPStatus(status).phrase,
        status=status,
        detail=message,
        instance=request.path,
        errorCode=code,
        message=message,
        timestamp=utc_now().isoformat(),
        path=request.path,
        requestId=request.request_id,
        errors=errors or [],
    )
    return Response(orjson.dumps(body.model_dump()), status, dict(headers or {}), MEDIA_TYPE)


def unexpected(request: RequestInfo) -> Response:
    """The answer where the program is at fault: what happened is in the log under the request's id."""
    return problem_of_status(request, HTTPStatus.INTERNAL_SERVER_ERROR)


_STATUS_TEXTS = {
    404: ("NOT_FOUND_PATH", "이 주소에는 아무것도 없습니다", "There is nothing at this address"),
    405: ("METHOD_NOT_ALLOWED", "이 주소는 이 메서드를 지원하지 않습니다", "This address does not take this method"),
    500: (
        "INTERNAL_ERROR",
        "예상하지 못한 오류가 발생했습니다. 요청 ID와 함께 관리자에게 문의하세요",
        "An unexpected error: tell the operator the request id",
    ),
}


def problem_of_status(request: RequestInfo, status: int, headers: Mapping[str, str] | None = None) -> Response:
    """A problem for a status that no rule of ours has raised."""
    phrase = HTTPStatus(status).phrase
    code, korean, english = _STATUS_TEXTS.get(
        status, (f"HTTP_{status}", f"요청을 처리할 수 없습니다 ({status})", phrase)
    )
    return answer(request, status, code, english if request.language is Language.ENGLISH else korean, headers=headers)


async def _domain(request: Request, error: Exception) -> Response:
    assert isinstance(error, DomainError)
    return problem(info(request.scope), error)


async def _environment(request: Request, error: Exception) -> Response:
    """A server or setting of ours: its text may name addresses, which are for our log."""
    log.error("request failed", error=str(error))
    return problem(info(request.scope), unavailable())


async def _database(request: Request, error: Exception) -> Response:
    assert isinstance(error, SQLAlchemyError)
    if is_away(error):
        log.warning("database away", error=type(error).__name__)
        return problem(info(request.scope), unavailable())
    log.error("request failed", exc_info=error)
    return unexpected(info(request.scope))


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(await run_sync(_allowed, request)) or headers.get("Allow", "")
    return problem_of_status(info(request.scope), error.status_code, headers)


def _allowed(request: Request) -> list[str]:
    """The methods of all routes with this path: the router names those of the first one alone."""
    paths: Mapping[str, Mapping[str, Any]] = request.app.openapi()["paths"]
    asked: str = request.scope["path"]
    # A path that is written out comes before one with a place for any value.
    found = [paths[asked]] if asked in paths else [paths[path] for path in paths if _fits(path, asked)]
    return sorted({method.upper() for methods in found for method in methods})


def _fits(template: str, path: str) -> bool:
    parts = re.split(r"\{[^}]*\}", template)
    return re.fullmatch("[^/]+".join(map(re.escape, parts)), path) is not None


async def _unreadable(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    about = info(request.scope)
    fields = [_field(found, about.language) for found in error.errors()]
    return problem(
        about,
        RequestRefused(
            "VALIDATION_REQUEST",
            korean="요청 형식이 올바르지 않습니다",
            english="The request cannot be read as this address expects it",
            errors=fields,
        ),
    )


def unavailable() -> Unavailable:
    """PostgreSQL or another server of ours does not answer."""
    return Unavailable(
        "UNAVAILABLE_DATABASE",
        korean="지금은 처리할 수 없습니다. 잠시 후 다시 시도하세요",
        english="This cannot be answered for the moment: try again soon",
    )


def _field(found: Mapping[str, Any], language: Language) -> FieldProblem:
    """Where and what; never the value, which may be a password."""
    kind: str = found["type"]
    # Of what is no JSON it says how far it was read.
    place = "" if kind == "json_invalid" else ".".join(str(part) for part in found["loc"][1:])
    reason = found.get("ctx", {}).get("error")
    if isinstance(reason, DomainError):
        text = reason.message(language)
    elif language is Language.ENGLISH:
        text = _ENGLISH.get(kind, str(found["msg"]).removeprefix("Value error, "))
    else:
        text = _KOREAN.get(kind, "올바르지 않은 값입니다")
    return FieldProblem(field=place[:LONGEST_FIELD] or "body", message=text)
