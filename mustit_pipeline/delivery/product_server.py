"""The product server's side of a delivery: one POST, and what its answer means."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from types import TracebackType
from typing import Any

import aiohttp
import yarl

from mustit_pipeline.foundation.failures import parse_retry_after
from mustit_pipeline.marketplace.excerpt import safe_excerpt
from mustit_pipeline.settings import Settings, SettingsError

LARGEST_ANSWER = 64 * 1024
NO_CONNECTION = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
DROPPED = (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError)
# What is no clean HTTP is one of aiohttp's own errors, and a reason in another encoding one of text.
NO_HTTP = (aiohttp.ClientError, ValueError)
TRIED_AGAIN = frozenset({408, 422, 425})
OF_THE_SERVER = frozenset({429, 502, 503, 504})
OF_THE_CREDENTIAL = frozenset({401, 403})
EVENTS_PATH = "/api/v1/product-events"
# No Retry-After makes a row wait for longer.
LONGEST_RETRY_AFTER_SECONDS = 3600.0


class Verdict(StrEnum):
    """What a delivery attempt came to."""

    DONE = "DONE"
    STALE = "STALE"
    RETRY = "RETRY"
    REFUSED = "REFUSED"
    # The server answers for itself: it is overloaded, or what stands before it finds it gone.
    OVERLOADED = "OVERLOADED"
    # It does not accept our token.
    UNAUTHORIZED = "UNAUTHORIZED"
    # The connection broke after the event was under way, or there was none.
    DROPPED = "DROPPED"
    UNREACHABLE = "UNREACHABLE"
    # Nothing was asked of the server, or it was given no time to answer.
    RETURNED = "RETURNED"


# About the row, or about the server or our credential: other rows' answers tell.
DOUBTFUL = frozenset({Verdict.OVERLOADED, Verdict.UNAUTHORIZED, Verdict.DROPPED, Verdict.UNREACHABLE})


@dataclass(frozen=True, slots=True)
class Answer:
    """One attempt's outcome, with what an operator needs to see."""

    verdict: Verdict
    status: int | None
    reason: str | None
    # Whether the event may have arrived; without a connection it cannot have.
    sent: bool = True
    # The seconds that the server asks for before the next try.
    retry_after: float = 0.0

    @property
    def is_doubtful(self) -> bool:
        """Whether it may be about the server or our credential."""
        return self.verdict in DOUBTFUL

    @property
    def is_delivery(self) -> bool:
        """Whether the server has just taken this version."""
        return self.verdict is Verdict.DONE and self.status is not None

    @property
    def is_well(self) -> bool:
        """Whether the server looked at the event and judged it: it is there, and accepts our token."""
        return self.status == 422 or (
            self.status is not None and self.verdict in (Verdict.DONE, Verdict.STALE, Verdict.REFUSED)
        )


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back, whole or up to its limit."""

    status: int
    body: bytes
    retry_after: str | None = None


NOTHING_TO_SAY = Answer(Verdict.DONE, None, None, sent=False)
NOT_SENT = Answer(Verdict.RETURNED, None, None, sent=False)
CUT_OFF = Answer(Verdict.RETURNED, None, None)


def judge(status: int) -> Verdict:
    """What an HTTP status means for the row that was sent."""
    if 200 <= status < 300:
        return Verdict.DONE
    if status == 409:
        return Verdict.STALE
    if status in OF_THE_SERVER:
        return Verdict.OVERLOADED
    if status in OF_THE_CREDENTIAL:
        return Verdict.UNAUTHORIZED
    if status in TRIED_AGAIN or status >= 500:
        return Verdict.RETRY
    return Verdict.REFUSED


class ProductServer:
    """A client for the configured product server; use as an async context manager.

    It is aiohttp itself: httpx around it takes three times the CPU time of a call, which is most of what a relay does.
    """

    def __init__(self, settings: Settings, *, connections: int) -> None:
        if settings.product_server_url is None:
            raise SettingsError(
                "MUSTIT_PRODUCT_SERVER_URL is not set: give the product server's address, "
                "or run `mustit up` to have one simulated",
                korean="MUSTIT_PRODUCT_SERVER_URL이 설정되지 않았습니다. 상품 서버의 주소를 설정하거나, "
                "시뮬레이션은 `mustit up`을 실행하세요",
            )
        self._url = settings.product_server_url
        self._events = yarl.URL(self._url + EVENTS_PATH, encoded=True)
        self._largest_body = settings.max_body_bytes
        self._read_seconds = settings.product_server_read_seconds
        self._connect_seconds = settings.product_server_connect_seconds
        self._whole_call_seconds = settings.product_server_call_seconds
        self._connections = connections
        self._headers = {"Content-Type": "application/json"}
        token = settings.product_server_token
        self._secret = None if token is None else token.get_secret_value().encode()
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token.get_secret_value()}"

    async def __aenter__(self) -> "ProductServer":
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._connections),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_seconds, sock_read=self._read_seconds),
            headers=self._headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def deliver(self, key: str, body: bytes) -> Answer:
        """Send one event; never raises for what the other side does."""
        headers = {"Idempotency-Key": key}
        reply = await self._call("POST", self._events, LARGEST_ANSWER, data=body, headers=headers)
        if isinstance(reply, Answer):
            return reply
        verdict = judge(reply.status)
        if verdict is Verdict.DONE:
            return Answer(verdict, reply.status, None)
        wait = 0.0
        if verdict is Verdict.OVERLOADED:
            wait = min(parse_retry_after(reply.retry_after, datetime.now(UTC)) or 0.0, LONGEST_RETRY_AFTER_SECONDS)
        return Answer(verdict, reply.status, self._excerpt(reply), retry_after=wait)

    async def look(self, path: str) -> Reply | Answer:
        """What is there, or the answer that says why nothing came back; never raises for what the other side does."""
        return await self._call("GET", yarl.URL(self._url + path, encoded=True), self._largest_body)

    async def _call(self, method: str, url: yarl.URL, largest: int, **sent: Any) -> Reply | Answer:
        try:
            # Each read has its own time, so an answer that arrives byte by byte would never end.
            async with asyncio.timeout(self._whole_call_seconds):
                return await self._exchange(method, url, largest, **sent)
        except NO_CONNECTION as error:
            return Answer(Verdict.UNREACHABLE, None, f"no connection: {type(error).__name__}", sent=False)
        except aiohttp.ServerTimeoutError:
            return Answer(Verdict.RETRY, None, f"no answer within {self._read_seconds:g} s")
        except DROPPED as error:
            return Answer(Verdict.DROPPED, None, f"connection dropped: {type(error).__name__}")
        except TimeoutError:
            return Answer(Verdict.RETRY, None, f"no whole answer within {self._whole_call_seconds:g} s")
        except aiohttp.ClientPayloadError as error:
            return Answer(Verdict.RETRY, None, f"answer broken off: {type(error).__name__}")
        except NO_HTTP as error:
            return Answer(Verdict.RETRY, None, f"answer that is no HTTP: {type(error).__name__}")

    async def _exchange(self, method: str, url: yarl.URL, largest: int, **sent: Any) -> Reply:
        """The status and the start of what was said; an endless answer is not read to its end."""
        async with self._session.request(method, url, allow_redirects=False, **sent) as response:
            said = bytearray()
            async for part in response.content.iter_any():
                said += part
                if len(said) > largest:
                    # What is left of it may have no end: the connection goes with it.
                    response.close()
                    break
        return Reply(response.status, bytes(said), response.headers.get("Retry-After"))

    def _excerpt(self, reply: Reply) -> str:
        """What the server said, without anything secret: it may have repeated what it was sent."""
        said = reply.body
        if self._secret:
            said = said.replace(self._secret, "…".encode())
        return f"HTTP {reply.status}: {safe_excerpt(said)}"
