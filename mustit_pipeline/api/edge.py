"""The outermost layer: request ids, limits of size, paths read segment by segment, security headers, and the log."""

import asyncio
import re
import time
from http import HTTPStatus
from urllib.parse import unquote_to_bytes
from uuid import uuid4

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mustit_pipeline.api.languages import preferred
from mustit_pipeline.api.problems import RequestRefused, problem, problem_of_status, unexpected
from mustit_pipeline.api.requests import RequestInfo, remember
from mustit_pipeline.domain.errors import Unavailable

LARGEST_BODY = 1024 * 1024
BODY_SECONDS = 30.0
WITHOUT_BODY = ("GET", "HEAD", "OPTIONS")
LONGEST_PATH = 4096
# Beyond that many requests at once a client is told to come back; streams of events count too.
MOST_AT_ONCE = 5000
# Stands for a slash inside of one segment, such as in a seller's id; no text that PostgreSQL stores can contain it.
SLASH = "\0"
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"permissions-policy": b"camera=(), geolocation=(), microphone=()",
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    b"cache-control": b"no-store",
}
HSTS = b"max-age=31536000"

log = structlog.get_logger(__name__)


class SlowBody(Exception):
    """A body was not whole in time."""


class Edge:
    """Wraps the application; whatever fails inside is answered here, and each request leaves one line in the log."""

    def __init__(self, app: ASGIApp, *, https: bool) -> None:
        self._app = app
        self._https = https
        self._at_once = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        about = _about(scope)
        remember(scope, about)
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request_id=about.request_id)
        if scope["type"] == "websocket":
            await self._app(scope, receive, send)
        else:
            await self._answer(scope, receive, send, about)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, about: RequestInfo) -> None:
        started = time.perf_counter()
        status = 0
        self._at_once += 1

        async def dressed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = int(message["status"])
                message = {**message, "headers": self._headers(list(message.get("headers", [])), about)}
            await send(message)

        try:
            path = _readable_path(scope)
            if self._at_once > MOST_AT_ONCE:
                await problem(about, _too_many())(scope, receive, dressed)
            elif path is None:
                await problem(about, _bad_path())(scope, receive, dressed)
            elif (body := await _read(scope, receive)) is None:
                await problem_of_status(about, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)(scope, receive, dressed)
            else:
                scope["path"] = path
                await self._app(scope, _again(body, receive), dressed)
        except SlowBody:
            await problem_of_status(about, HTTPStatus.REQUEST_TIMEOUT)(scope, receive, dressed)
        except Exception as error:
            log.exception("request failed", path=about.path, error=type(error).__name__)
            if status == 0:
                await unexpected(about)(scope, receive, dressed)
        finally:
            self._at_once -= 1
            milliseconds = round(1000 * (time.perf_counter() - started), 1)
            log.info("request", method=scope["method"], path=about.path, status=status, milliseconds=milliseconds)

    def _headers(self, given: list[tuple[bytes, bytes]], about: RequestInfo) -> list[tuple[bytes, bytes]]:
        """The security headers that the answer has not set itself, and the request's id."""
        present = {name.lower() for name, _ in given}
        added = [(name, value) for name, value in HEADERS.items() if name not in present]
        if self._https:
            added.append((b"strict-transport-security", HSTS))
        return [*given, *added, (b"x-request-id", about.request_id.encode())]


def _about(scope: Scope) -> RequestInfo:
    headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
    given = headers.get(b"x-request-id", "")
    client = scope.get("client")
    return RequestInfo(
        request_id=given if _REQUEST_ID.fullmatch(given) else uuid4().hex,
        language=preferred(headers.get(b"accept-language")),
        path=_raw_path(scope).decode("ascii", "replace")[:LONGEST_PATH],
        address=client[0] if client else None,
    )


def _raw_path(scope: Scope) -> bytes:
    return bytes(scope.get("raw_path") or scope["path"].encode()).partition(b"?")[0]


def _readable_path(scope: Scope) -> str | None:
    """The path, decoded once and segment by segment; None where it is no UTF-8 or far too long."""
    raw = _raw_path(scope)
    if len(raw) > LONGEST_PATH:
        return None
    try:
        segments = [unquote_to_bytes(segment).decode() for segment in raw.split(b"/")]
    except UnicodeDecodeError:
        return None
    if any(SLASH in segment for segment in segments):
        return None
    return "/".join(segment.replace("/", SLASH) for segment in segments)


async def _read(scope: Scope, receive: Receive) -> bytes | None:
    """The whole body, before anything works on it; None where it is too large."""
    if scope["method"] in WITHOUT_BODY:
        return b""
    if _announced_size(scope) > LARGEST_BODY:
        return None
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                message = await receive()
                body += message.get("body", b"")
                if len(body) > LARGEST_BODY:
                    return None
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        raise SlowBody from None


def _again(body: bytes, receive: Receive) -> Receive:
    """The read body as the application receives it; what follows comes from the client."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def given() -> Message:
        return messages.pop() if messages else await receive()

    return given


def _announced_size(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value) if value.isdigit() else 0
    return 0


def _too_many() -> Unavailable:
    return Unavailable(
        "UNAVAILABLE_BUSY",
        korean="요청이 너무 많습니다. 잠시 후 다시 시도하세요",
        english="Too many requests at once: try again soon",
    )


def _bad_path() -> RequestRefused:
    return RequestRefused(
        "VALIDATION_PATH",
        korean="주소는 한 번만 퍼센트 인코딩된 UTF-8이어야 합니다",
        english="A path is UTF-8, percent-encoded once",
    )
