"""Calls to the marketplace: one request each, bounded in time and size, to the configured server only."""

import asyncio
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import perf_counter
from typing import Self

import aiohttp
import yarl

from mustit_pipeline.foundation.failures import (
    BodyTooLarge,
    ForbiddenHost,
    MalformedBody,
    NetworkFailure,
    NetworkReason,
    failure_of_status,
)
from mustit_pipeline.marketplace.endpoints import Endpoints
from mustit_pipeline.settings import Settings

_ASKED = {"Accept": "application/json", "Accept-Encoding": "gzip"}


@dataclass(frozen=True, slots=True)
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
        self._server = f"MUSTIT_BASE_URL={self._origin}"
        self._limit = settings.max_body_bytes
        self._deadline = settings.total_timeout_seconds
        self._connections = settings.max_concurrent_requests
        # The wait for a free connection is bounded only by the deadline.
        self._timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=settings.connect_timeout_seconds, sock_read=settings.read_timeout_seconds
        )
        self._pool: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        # aiohttp instead of httpx: its cookies, redirects, proxies and auth are not needed here, and its request and
        # URL objects cost as much CPU time as the rest of a call.
        self._pool = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._connections),
            # Agents must not share cookies.
            cookie_jar=aiohttp.DummyCookieJar(),
            middlewares=(_send_once,),
            timeout=self._timeout,
            auto_decompress=False,
            skip_auto_headers=("User-Agent",),
            trust_env=False,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._pool is not None:
            await self._pool.close()
            self._pool = None

    async def call(self, url: str, headers: Mapping[str, str]) -> Answer:
        """One request and its whole answer, or a FetchError."""
        target = self._permitted(url)
        path = target.raw_path
        if self._pool is None:
            raise RuntimeError("the client is used outside of its context")
        started, answered = perf_counter(), False
        try:
            async with (
                asyncio.timeout(self._deadline),
                self._pool.get(target, headers=_ASKED | _sendable(headers), allow_redirects=False) as response,
            ):
                answered = True
                retry_after = response.headers.get("retry-after")
                failure = failure_of_status(response.status, path, retry_after, datetime.now(UTC))
                if failure is not None:
                    # Its body is not needed and may be endless: close the connection.
                    response.close()
                    raise failure
                body = await self._whole_body(response, path)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            # Without the cause: its text may contain headers of the request.
            raise NetworkFailure(path, _reason(error), answered=answered, server=self._server) from None
        return Answer(body, perf_counter() - started, tuple(response.headers.getall("set-cookie", ())))

    def _permitted(self, url: str) -> yarl.URL:
        try:
            # The URLs are percent-encoded already.
            target = yarl.URL(url, encoded=True)
            if url.startswith(self._prefix) and url.isascii() and url.isprintable() and " " not in url:
                return target
            host = target.host or ""
            ours = target.origin() == self._origin and target.user is None and target.password is None
        except ValueError:
            raise ForbiddenHost("", "invalid URL") from None
        if not (url.isascii() and url.isprintable()) or " " in url:
            raise ForbiddenHost("", "invalid URL")
        if not ours:
            raise ForbiddenHost(target.raw_path, host)
        return target

    async def _whole_body(self, response: aiohttp.ClientResponse, path: str) -> bytes:
        """The decompressed body; never more than the limit is held in memory, whatever the headers say."""
        announced = response.headers.get("content-length", "")
        if announced.isascii() and announced.isdigit() and int(announced[:20]) > self._limit:
            raise BodyTooLarge(path, self._limit)
        encoding = response.headers.get("content-encoding", "").strip().lower()
        if encoding not in ("", "identity", "gzip", "x-gzip"):
            raise MalformedBody("answer", "its content encoding was not asked for", path=path)
        if announced and not encoding and "transfer-encoding" not in response.headers:
            # aiohttp reads Content-Length bytes and no more.
            return await response.read()
        unzip = zlib.decompressobj(wbits=31) if encoding.endswith("gzip") else None
        parts: list[bytes] = []
        size = 0
        async for chunk in response.content.iter_any():
            # At most one byte over the limit is decompressed, so a compression bomb cannot grow.
            part = _unzipped(unzip, chunk, self._limit + 1, path) if unzip else chunk
            size += len(part)
            if size > self._limit:
                raise BodyTooLarge(path, self._limit)
            parts.append(part)
        if unzip and not unzip.eof:
            raise MalformedBody("answer", "its gzip data is cut off", path=path)
        return b"".join(parts)


def _unzipped(
    unzip: "zlib._Decompress",  # pyright: ignore[reportPrivateUsage]
    chunk: bytes,
    at_most: int,
    path: str,
) -> bytes:
    try:
        part = unzip.decompress(chunk, at_most)
    except zlib.error:
        raise MalformedBody("answer", "its gzip data is broken", path=path) from None
    if unzip.unused_data:
        # zlib keeps such data in memory without a bound, and ignoring it would shorten the body silently.
        raise MalformedBody("answer", "its gzip data goes on after its end", path=path)
    return part


def _sendable(headers: Mapping[str, str]) -> dict[str, str]:
    """Refuse headers that HTTP cannot carry; our error does not show the value, the libraries' errors would."""
    for name, value in headers.items():
        if not (value.isascii() and value.isprintable()):
            raise ValueError(f"the header {name} takes printable ASCII text only")
    return dict(headers)


async def _send_once(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Keep aiohttp from silently repeating a GET on a dropped connection: the marketplace would count two requests."""
    try:
        return await send(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError):
        raise aiohttp.ClientConnectionError from None


def _reason(error: Exception) -> NetworkReason:
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return NetworkReason.CONNECT_TIMEOUT
    if isinstance(error, aiohttp.ClientConnectorError):
        return NetworkReason.CONNECT
    if isinstance(error, aiohttp.ServerTimeoutError):
        return NetworkReason.READ_TIMEOUT
    return NetworkReason.DEADLINE if isinstance(error, TimeoutError) else NetworkReason.BROKEN
