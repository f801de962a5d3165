"""Calls to the marketplace: one request each, bounded in time and size, to the configured server only."""

import asyncio
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import perf_counter
from typing import Self

import yarl

from mustit_pipeline.failures import (
    BodyTooLarge,
    ForbiddenHost,
    MalformedBody,
    NetworkFailure,
    failure_of_status,
)
from mustit_pipeline.marketplace.endpoints import Endpoints
from mustit_pipeline.marketplace.http1 import Bounds, Broken, Connections, Reply, TooLarge
from mustit_pipeline.settings import Settings

_ASKED = {"Accept": "application/json", "Accept-Encoding": "gzip"}


@dataclass(frozen=True, slots=True)
class Answer:
    """A success: its whole body, decompressed, and how long the call took."""

    body: bytes = field(repr=False)
    seconds: float
    set_cookies: tuple[str, ...] = field(default=(), repr=False)


class MarketplaceClient:
    """Sends single requests and raises a FetchError for whatever is no success; repeating is the caller's business."""

    def __init__(self, settings: Settings) -> None:
        self.endpoints = Endpoints.from_settings(settings)
        self._origin = yarl.URL(settings.base_url).origin()
        self._limit = settings.max_body_bytes
        self._deadline = settings.total_timeout_seconds
        self._most = settings.max_concurrent_requests
        self._bounds = Bounds(
            settings.connect_timeout_seconds, settings.read_timeout_seconds, body_bytes=settings.max_body_bytes
        )
        self._connections: Connections | None = None

    async def __aenter__(self) -> Self:
        origin = self._origin
        self._connections = Connections(
            origin.host or "", origin.port or 0, tls=origin.scheme == "https", most=self._most, bounds=self._bounds
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._connections is not None:
            self._connections.close()
            self._connections = None

    async def call(self, url: str, headers: Mapping[str, str]) -> Answer:
        """One request and its whole answer, or a FetchError."""
        target = self._permitted(url)
        path = target.partition("?")[0]
        request = self._request(target, headers)
        if self._connections is None:
            raise RuntimeError("the client is used outside of its context")
        started = perf_counter()
        deadline = asyncio.get_running_loop().time() + self._deadline
        try:
            reply = await self._connections.exchange(request, deadline)
        except Broken as error:
            raise NetworkFailure(path, error.reason) from None
        except TooLarge:
            raise BodyTooLarge(path, self._limit) from None
        if not 200 <= reply.status < 300:
            failure = failure_of_status(reply.status, path, reply.first("retry-after"), datetime.now(UTC))
            if failure is not None:
                raise failure
        return Answer(self._unpacked(reply, path), perf_counter() - started, reply.all("set-cookie"))

    def _permitted(self, url: str) -> str:
        """What is asked of the server: the path and query of an address that is the configured server's."""
        if not (url.isascii() and url.isprintable()) or " " in url:
            raise ForbiddenHost("", "invalid URL")
        ours, slash, rest = url.partition(f"{self._origin}/")
        if not ours and slash:
            return "/" + rest.partition("#")[0]
        try:
            # Sent as it is: the addresses are percent-encoded already.
            target = yarl.URL(url, encoded=True)
            host = target.host or ""
            permitted = target.origin() == self._origin and target.user is None and target.password is None
        except ValueError:
            raise ForbiddenHost("", "invalid URL") from None
        if not permitted:
            raise ForbiddenHost(target.raw_path, host)
        return target.raw_path_qs

    def _request(self, target: str, headers: Mapping[str, str]) -> bytes:
        sent = {"Host": self._origin.host_port_subcomponent or ""} | _ASKED | _sendable(headers)
        lines = "\r\n".join(f"{name}: {value}" for name, value in sent.items())
        return f"GET {target} HTTP/1.1\r\n{lines}\r\n\r\n".encode("ascii")

    def _unpacked(self, reply: Reply, path: str) -> bytes:
        """The decompressed body, which is never larger than the limit either."""
        encoding = (reply.first("content-encoding") or "").lower()
        if encoding in ("", "identity"):
            return reply.body
        if encoding not in ("gzip", "x-gzip"):
            raise MalformedBody("answer", "its content encoding was not asked for", path=path)
        unzip = zlib.decompressobj(wbits=31)
        # Unfolds at most one byte over the limit, so a bomb never does.
        body = _unzipped(unzip, reply.body, self._limit + 1, path)
        if len(body) > self._limit:
            raise BodyTooLarge(path, self._limit)
        if not unzip.eof:
            raise MalformedBody("answer", "its gzip data is cut off", path=path)
        return body


def _unzipped(unzip: "zlib._Decompress", chunk: bytes, at_most: int, path: str) -> bytes:
    try:
        part = unzip.decompress(chunk, at_most)
    except zlib.error:
        raise MalformedBody("answer", "its gzip data is broken", path=path) from None
    if unzip.unused_data:
        # Kept by zlib without a bound, and a body cut there would be silently short.
        raise MalformedBody("answer", "its gzip data goes on after its end", path=path)
    return part


def _sendable(headers: Mapping[str, str]) -> dict[str, str]:
    """Refuses what HTTP cannot carry, without showing it: the libraries' own errors would hold the value."""
    for name, value in headers.items():
        if not (value.isascii() and value.isprintable()):
            raise ValueError(f"the header {name} takes printable ASCII text only")
    return dict(headers)
