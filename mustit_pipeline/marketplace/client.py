"""Calls to the marketplace: one request each, bounded in time and size, to the configured server only."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import perf_counter
from typing import Self

import yarl

from mustit_pipeline.foundation.failures import (
    BodyTooLarge,
    ForbiddenHost,
    MalformedBody,
    NetworkFailure,
    failure_of_status,
)
from mustit_pipeline.foundation.http_server import CallFailed, CannotUnpack, HttpServer, TooLarge
from mustit_pipeline.marketplace.endpoints import Endpoints
from mustit_pipeline.settings import Settings

_USUAL = {"Accept": "application/json", "Accept-Encoding": "gzip"}


@dataclass(slots=True)
class Answer:
    """A success: its whole body, decompressed, and how long the call took."""

    body: bytes = field(repr=False)
    seconds: float
    set_cookies: tuple[str, ...] = field(default=(), repr=False)


class MarketplaceClient:
    """Sends single requests and raises a FetchError unless they succeed; the caller retries."""

    def __init__(self, settings: Settings) -> None:
        self.endpoints = Endpoints.from_settings(settings)
        self._origin = yarl.URL(settings.marketplace_url).origin()
        self._prefix = f"{self._origin}/"
        self._named = f"MUSTIT_BASE_URL={self._origin}"
        self._limit = settings.max_body_bytes
        self._server = HttpServer(
            settings.marketplace_url,
            connections=settings.max_concurrent_requests,
            connect_seconds=settings.connect_timeout_seconds,
            read_seconds=settings.read_timeout_seconds,
            call_seconds=settings.total_timeout_seconds,
            # The body of an error is not needed and may be endless.
            reads_errors=False,
        )

    async def __aenter__(self) -> Self:
        await self._server.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.__aexit__()

    async def call(self, url: str, headers: dict[str, str]) -> Answer:
        """One request and its whole answer, or a FetchError."""
        target = self._permitted(url)
        path = target.partition("?")[0]
        for name, value in headers.items():
            # Our error does not show the value, the libraries' errors would.
            if not (value.isascii() and value.isprintable()):
                raise ValueError(f"the header {name} takes printable ASCII text only")
        lines = "\r\n".join([f"{name}: {value}" for name, value in (_USUAL | headers).items()])
        request = f"GET {target} HTTP/1.1\r\n{self._server.host_line}{lines}\r\n\r\n".encode("ascii")
        started = perf_counter()
        try:
            answer = await self._server.call(request, self._limit)
        except CallFailed as error:
            raise NetworkFailure(path, error.reason, answered=error.answered, server=self._named) from None
        seconds = perf_counter() - started
        if answer.status != 200:
            failure = failure_of_status(answer.status, path, answer.header(b"retry-after"), datetime.now(UTC))
            if failure is not None:
                raise failure
        cookies = tuple([cookie.decode("utf-8", "replace") for cookie in answer.set_cookies])
        try:
            # Never more than the limit is unpacked, whatever the headers say.
            return Answer(answer.unpacked(self._limit), seconds, cookies)
        except CannotUnpack as error:
            raise MalformedBody("answer", str(error), path=path) from None
        except TooLarge:
            raise BodyTooLarge(path, self._limit) from None

    def _permitted(self, url: str) -> str:
        """What to ask this server for; any other address is refused."""
        if url.isascii() and url.isprintable() and " " not in url:
            if url.startswith(self._prefix):
                # The URLs are percent-encoded already.
                return url[len(self._prefix) - 1 :].partition("#")[0]
            try:
                target = yarl.URL(url, encoded=True)
                host, path = target.host or "", target.raw_path
                if target.origin() == self._origin and target.user is None and target.password is None:
                    return target.raw_path_qs
            except ValueError:
                raise ForbiddenHost("", "invalid URL") from None
            raise ForbiddenHost(path, host)
        raise ForbiddenHost("", "invalid URL")
