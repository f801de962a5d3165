"""The connections of clients: the head of a request is small and comes in time, or its connection ends.

uvicorn limits neither, and a proxy that does is not always there: a few thousand clients that send a byte a minute, or
one that sends headers without an end, would leave no room for the others.
"""

import asyncio
import resource
from asyncio import TimerHandle
from http import HTTPStatus
from typing import Any
from uuid import uuid4

import structlog
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from mustit_pipeline.api.edge import HEADERS
from mustit_pipeline.api.languages import Language
from mustit_pipeline.api.problems import MEDIA_TYPE, RequestRefused, problem
from mustit_pipeline.api.requests import RequestInfo

# What browsers and proxies send is a tenth of it.
LARGEST_HEAD = 64 * 1024
HEAD_SECONDS = 10.0
# A stream of events, like any connection, is an open file; a shell usually allows 1,024 of them.
MOST_FILES = 16_384

log = structlog.get_logger(__name__)


class Connection(HttpToolsProtocol):
    """One client's connection, which may stay idle between requests for uvicorn's keep-alive time alone."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._due: TimerHandle | None = None
        self._in_head = True
        self._head_size = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        # Whatever comes while no request is answered belongs to the head of the next one, or delays it.
        if not self.cycle or self.cycle.response_complete:
            self._expect_head()
        went_on = self._in_head
        super().data_received(data)
        if went_on and self._in_head:
            self._head_size += len(data)
            if self._head_size > LARGEST_HEAD:
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def on_message_begin(self) -> None:
        self._in_head, self._head_size = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._stop_waiting()
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, such as an address in Korean letters, with a problem like any other."""
        about = RequestInfo(uuid4().hex, Language.KOREAN, path="", address=None)
        refused = RequestRefused(
            "VALIDATION_HTTP",
            korean="HTTP 요청을 읽을 수 없습니다. 주소에 있는 한글이나 공백은 퍼센트 인코딩하세요",
            english="This is no HTTP request: percent-encode letters and blanks of the address that are not ASCII",
        )
        log.info("request", status=refused.status, request_id=about.request_id)
        body = bytes(problem(about, refused).body)
        headers = HEADERS | {
            b"content-type": MEDIA_TYPE.encode(),
            b"content-length": str(len(body)).encode(),
            b"connection": b"close",
            b"x-request-id": about.request_id.encode(),
        }
        lines = [b"HTTP/1.1 400 Bad Request", *(b": ".join(header) for header in headers.items()), b"", body]
        self.transport.write(b"\r\n".join(lines))
        self.transport.close()

    def _expect_head(self) -> None:
        if self._due is None:
            self._due = self.loop.call_later(HEAD_SECONDS, self._refuse, HTTPStatus.REQUEST_TIMEOUT)

    def _stop_waiting(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _refuse(self, status: HTTPStatus) -> None:
        """End the connection; before a request is known there is no answer in the form of the API."""
        if self.transport.is_closing():
            return
        head = f"HTTP/1.1 {status.value} {status.phrase}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
        self.transport.write(head.encode())
        self.transport.close()


def allow_many_connections() -> None:
    """Let this process, and those that it starts, open as many files as the host permits and streams may need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(MOST_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
