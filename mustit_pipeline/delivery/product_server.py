"""The product server's side of a delivery: one POST, and what its answer means."""

import asyncio
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Any

import aiohttp
import httpx
import httpx_aiohttp

from mustit_pipeline.marketplace.excerpt import safe_excerpt
from mustit_pipeline.settings import Settings, SettingsError

# Each read has its own time, so an answer that arrives byte by byte would never end.
LARGEST_ANSWER = 64 * 1024
NO_CONNECTION = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
DROPPED = (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError)
# What is no clean HTTP reaches us as aiohttp's own errors, and a reason in another encoding as one of text.
NO_HTTP = (aiohttp.ClientError, ValueError)
RETRIED_STATUSES = frozenset({408, 422, 429})
EVENTS_PATH = "/api/v1/product-events"


class Verdict(StrEnum):
    """What a delivery attempt came to."""

    DONE = "DONE"
    STALE = "STALE"
    RETRY = "RETRY"
    REFUSED = "REFUSED"
    UNREACHABLE = "UNREACHABLE"


@dataclass(frozen=True, slots=True)
class Answer:
    """One attempt's outcome, with what an operator needs to see."""

    verdict: Verdict
    status: int | None
    reason: str | None
    # Whether the event may have arrived; without a connection it cannot have.
    sent: bool = True

    @property
    def answered(self) -> bool:
        """Whether the server was reached; a reading time-out is one of a server that is there."""
        return self.sent and self.verdict is not Verdict.UNREACHABLE

    @property
    def unreachable(self) -> bool:
        """Whether it was tried and nobody was there."""
        return self.verdict is Verdict.UNREACHABLE and self is not NOT_SENT


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back, whole or up to its limit."""

    status: int
    body: bytes


NOTHING_TO_SAY = Answer(Verdict.DONE, None, None, sent=False)
NOT_SENT = Answer(Verdict.UNREACHABLE, None, None, sent=False)


def judge(status: int) -> Verdict:
    """What an HTTP status means for the row that was sent."""
    if 200 <= status < 300:
        return Verdict.DONE
    if status == 409:
        return Verdict.STALE
    if status in RETRIED_STATUSES or status >= 500:
        return Verdict.RETRY
    return Verdict.REFUSED


class ProductServer:
    """A client for the configured product server; use as an async context manager."""

    def __init__(self, settings: Settings, *, connections: int) -> None:
        if settings.product_server_url is None:
            raise SettingsError(
                "MUSTIT_PRODUCT_SERVER_URL is not set: give the product server's address, "
                "or run `mustit up` to have one simulated"
            )
        self._url = settings.product_server_url
        self._largest_body = settings.max_body_bytes
        self._read_seconds = settings.product_server_read_seconds
        self._whole_call_seconds = settings.product_server_call_seconds
        headers = {"Content-Type": "application/json"}
        token = settings.product_server_token
        self._secret = None if token is None else token.get_secret_value().encode()
        if token is not None:
            headers["Authorization"] = f"Bearer {token.get_secret_value()}"
        limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
        self._client = httpx.AsyncClient(
            transport=httpx_aiohttp.AiohttpTransport(limits=limits, trust_env=False),
            timeout=httpx.Timeout(
                settings.product_server_read_seconds, connect=settings.product_server_connect_seconds
            ),
            headers=headers,
            follow_redirects=False,
            trust_env=False,
        )

    async def __aenter__(self) -> "ProductServer":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def deliver(self, key: str, body: bytes) -> Answer:
        """Send one event; never raises for what the other side does."""
        headers = {"Idempotency-Key": key}
        reply = await self._call("POST", EVENTS_PATH, LARGEST_ANSWER, content=body, headers=headers)
        if isinstance(reply, Answer):
            return reply
        verdict = judge(reply.status)
        return Answer(verdict, reply.status, None if verdict is Verdict.DONE else self._excerpt(reply))

    async def look(self, path: str) -> Reply | Answer:
        """What is there, or the answer that says why nothing came back; never raises for what the other side does."""
        return await self._call("GET", path, self._largest_body)

    async def _call(self, method: str, path: str, largest: int, **sent: Any) -> Reply | Answer:
        try:
            async with asyncio.timeout(self._whole_call_seconds):
                return await self._exchange(method, path, largest, **sent)
        except TimeoutError:
            return Answer(Verdict.RETRY, None, f"no whole answer within {self._whole_call_seconds:g} s")
        except httpx.HTTPError as error:
            # httpx-aiohttp folds a dropped connection into a timeout; the cause underneath tells them apart.
            cause = error.__cause__
            if isinstance(cause, NO_CONNECTION):
                return Answer(Verdict.UNREACHABLE, None, f"no connection: {type(cause).__name__}", sent=False)
            if isinstance(cause, DROPPED):
                return Answer(Verdict.UNREACHABLE, None, f"connection dropped: {type(cause).__name__}")
            if isinstance(error, httpx.TimeoutException):
                return Answer(Verdict.RETRY, None, f"no answer within {self._read_seconds:g} s")
            return Answer(Verdict.RETRY, None, f"answer broken off: {type(error).__name__}")
        except NO_HTTP as error:
            return Answer(Verdict.RETRY, None, f"answer that is no HTTP: {type(error).__name__}")

    async def _exchange(self, method: str, path: str, largest: int, **sent: Any) -> Reply:
        """The status and the start of what was said; an endless answer is not read to its end."""
        said = bytearray()
        async with self._client.stream(method, self._url + path, **sent) as response:
            async for part in response.aiter_bytes():
                said += part
                if len(said) > largest:
                    break
        return Reply(response.status_code, bytes(said))

    def _excerpt(self, reply: Reply) -> str:
        """What the server said, without anything secret: it may have repeated what it was sent."""
        said = reply.body
        if self._secret:
            said = said.replace(self._secret, "…".encode())
        return f"HTTP {reply.status}: {safe_excerpt(said)}"
