"""Calls to the marketplace: one request each, bounded in time and size, to the configured server only."""

import asyncio
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import perf_counter
from typing import Self, cast

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport

from mustit_pipeline.failures import (
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
    """Sends single requests and raises a FetchError for whatever is no success; repeating is the caller's business."""

    def __init__(self, settings: Settings) -> None:
        self.endpoints = Endpoints.from_settings(settings)
        self._origin = _origin(httpx.URL(settings.base_url))
        self._limit = settings.max_body_bytes
        self._deadline = settings.total_timeout_seconds
        context = httpx.create_ssl_context(trust_env=False)

        def open_pool() -> aiohttp.ClientSession:
            return aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=settings.max_concurrent_requests, ssl=context),
                # aiohttp would keep cookies, and agents must not share them.
                cookie_jar=aiohttp.DummyCookieJar(),
                middlewares=(_send_once,),
            )

        # Without httpx.AsyncClient around it: cookies, redirects, proxies and auth are all unwanted here, and
        # passing through them costs a third of a request's CPU time.
        self._transport = AiohttpTransport(verify=context, client=open_pool)
        timeout = httpx.Timeout(
            connect=settings.connect_timeout_seconds,
            read=settings.read_timeout_seconds,
            write=settings.read_timeout_seconds,
            # Waiting for a free connection is bounded by the deadline alone.
            pool=None,
        )
        self._extensions = {"timeout": timeout.as_dict()}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._transport.aclose()

    async def call(self, url: str, headers: Mapping[str, str]) -> Answer:
        """One request and its whole answer, or a FetchError."""
        target = self._permitted(url)
        path = _shown_path(target)
        request = httpx.Request("GET", target, headers=_ASKED | _sendable(headers), extensions=self._extensions)
        started = perf_counter()
        try:
            async with asyncio.timeout(self._deadline):
                response = await self._transport.handle_async_request(request)
                try:
                    retry_after = response.headers.get("retry-after")
                    failure = failure_of_status(response.status_code, path, retry_after, datetime.now(UTC))
                    if failure is not None:
                        raise failure
                    body = await self._whole_body(response, path)
                finally:
                    await response.aclose()
        except (httpx.HTTPError, httpx.StreamError, aiohttp.ClientError, TimeoutError, OSError) as error:
            # Without the cause: its text may name what a request carried.
            raise NetworkFailure(path, _reason(error)) from None
        return Answer(body, perf_counter() - started, tuple(response.headers.get_list("set-cookie")))

    def _permitted(self, url: str) -> httpx.URL:
        try:
            target = httpx.URL(url)
        except (httpx.InvalidURL, ValueError):
            raise ForbiddenHost("", "invalid URL") from None
        if _origin(target) != self._origin or target.userinfo:
            raise ForbiddenHost(_shown_path(target), target.host)
        return target

    async def _whole_body(self, response: httpx.Response, path: str) -> bytes:
        """The decompressed body; no more than the limit is ever held, whatever the headers say."""
        announced = response.headers.get("content-length", "")
        if announced.isascii() and announced.isdigit() and int(announced[:20]) > self._limit:
            raise BodyTooLarge(path, self._limit)
        encoding = response.headers.get("content-encoding", "").strip().lower()
        if encoding not in ("", "identity", "gzip", "x-gzip"):
            raise MalformedBody("answer", "its content encoding was not asked for", path=path)
        unzip = zlib.decompressobj(wbits=31) if encoding.endswith("gzip") else None
        parts: list[bytes] = []
        size = 0
        async for chunk in cast(httpx.AsyncByteStream, response.stream):
            # Unfolds at most one byte over the limit at a time, so a bomb never does.
            part = _unzipped(unzip, chunk, self._limit + 1, path) if unzip else chunk
            size += len(part)
            if size > self._limit:
                raise BodyTooLarge(path, self._limit)
            parts.append(part)
        if unzip and not unzip.eof:
            raise MalformedBody("answer", "its gzip data is cut off", path=path)
        return b"".join(parts)


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


def _shown_path(url: httpx.URL) -> str:
    """The path as sent, so that no encoded line break reaches a log."""
    return url.raw_path.partition(b"?")[0].decode("ascii")


async def _send_once(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Keeps aiohttp from silently repeating a GET on a dropped connection: the marketplace would count two."""
    try:
        return await send(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError):
        raise aiohttp.ClientConnectionError from None


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port or {"http": 80, "https": 443}.get(url.scheme)


def _reason(error: Exception) -> NetworkReason:
    # The transport calls every dropped connection a ConnectTimeout; only its cause tells them apart.
    cause = error.__cause__ or error
    if isinstance(cause, aiohttp.ConnectionTimeoutError):
        return NetworkReason.CONNECT_TIMEOUT
    if isinstance(cause, aiohttp.ClientConnectorError):
        return NetworkReason.CONNECT
    if isinstance(cause, aiohttp.ServerTimeoutError):
        return NetworkReason.READ_TIMEOUT
    return NetworkReason.DEADLINE if isinstance(error, TimeoutError) else NetworkReason.BROKEN
