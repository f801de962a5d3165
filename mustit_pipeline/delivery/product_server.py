"""The product server's side of a delivery: one POST, and what its answer means."""

from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType

import aiohttp
import httpx
import httpx_aiohttp

from mustit_pipeline.settings import Settings, SettingsError

CONNECT_SECONDS = 3.0
READ_SECONDS = 5.0
NO_ANSWER = (
    aiohttp.ClientConnectorError,
    aiohttp.ClientOSError,
    aiohttp.ServerDisconnectedError,
    aiohttp.ConnectionTimeoutError,
)
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
        self._url = settings.product_server_url + EVENTS_PATH
        headers = {"Content-Type": "application/json"}
        if settings.product_server_token is not None:
            headers["Authorization"] = f"Bearer {settings.product_server_token.get_secret_value()}"
        limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
        self._client = httpx.AsyncClient(
            transport=httpx_aiohttp.AiohttpTransport(limits=limits, trust_env=False),
            timeout=httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS),
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
        try:
            response = await self._client.post(self._url, content=body, headers={"Idempotency-Key": key})
        except httpx.HTTPError as error:
            # httpx-aiohttp folds a dropped connection into a timeout; the cause underneath tells them apart.
            if isinstance(error.__cause__, NO_ANSWER):
                return Answer(Verdict.UNREACHABLE, None, f"connection failed: {error.__cause__}"[:500])
            if isinstance(error, httpx.TimeoutException):
                return Answer(Verdict.RETRY, None, f"no answer within {READ_SECONDS:g} s")
            return Answer(Verdict.RETRY, None, f"answer broken off: {type(error).__name__} {error}"[:500])
        verdict = judge(response.status_code)
        reason = None if verdict is Verdict.DONE else response.text[:500].replace("\x00", "")
        return Answer(verdict, response.status_code, reason)
