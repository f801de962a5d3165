"""The product server's side of a delivery: the event that a row goes out as, one POST, and what its answer means."""

import traceback
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from types import TracebackType

import orjson
import structlog
import yarl
from msgspec import Struct

from mustit_pipeline.catalog.diff import diff
from mustit_pipeline.domain.states import LifeCycle, ProductEventType
from mustit_pipeline.foundation import logs
from mustit_pipeline.foundation.failures import NetworkReason, parse_retry_after
from mustit_pipeline.foundation.http_server import CallFailed, CannotUnpack, HttpAnswer, HttpServer, TooLarge
from mustit_pipeline.marketplace.excerpt import safe_excerpt
from mustit_pipeline.outbox.sql.outbox import ClaimedEvent
from mustit_pipeline.settings import Settings, SettingsError

LARGEST_ANSWER = 64 * 1024
TRIED_AGAIN = frozenset({408, 422, 425})
OF_THE_SERVER = frozenset({429, 502, 503, 504})
OF_THE_CREDENTIAL = frozenset({401, 403})
EVENTS_PATH = "/api/v1/product-events"
# No Retry-After makes a row wait for longer.
LONGEST_RETRY_AFTER_SECONDS = 3600.0

log = structlog.get_logger(__name__)


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


JUDGED = (Verdict.DONE, Verdict.STALE, Verdict.REFUSED)
# About the row, or about the server or our credential: other rows' answers tell.
DOUBTFUL = (Verdict.OVERLOADED, Verdict.UNAUTHORIZED, Verdict.DROPPED, Verdict.UNREACHABLE)


class Answer(Struct, frozen=True):
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
        return self.status is not None and (self.verdict in JUDGED or self.status == 422)


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back, whole or up to its limit."""

    status: int
    body: bytes


NOTHING_TO_SAY = Answer(Verdict.DONE, None, None, sent=False)
NOT_SENT = Answer(Verdict.RETURNED, None, None, sent=False)
CUT_OFF = Answer(Verdict.RETURNED, None, None)


def event_type(event: ClaimedEvent) -> ProductEventType | None:
    """What the product server has to be told; None where it never heard of the product that is gone."""
    if event.life_cycle == LifeCycle.DELETED:
        known = event.delivered_version > 0 or event.tried_before
        return ProductEventType.PRODUCT_DELETED if known else None
    delivered_alive = event.delivered_version > 0 and event.delivered_data is not None and not event.may_be_deleted
    if event.life_cycle == LifeCycle.UPDATED and delivered_alive:
        return ProductEventType.PRODUCT_UPDATED
    return ProductEventType.PRODUCT_CREATED


def event_body(event: ClaimedEvent, kind: ProductEventType) -> bytes:
    """The JSON body: the whole state, and the changes since the version that was delivered last."""
    changes: object = []
    if kind is ProductEventType.PRODUCT_UPDATED and event.delivered_data is not None and event.product_data is not None:
        if event.delivered_version == event.version - 1:
            changes = orjson.Fragment(event.changes)
        else:
            before, after = orjson.loads(event.delivered_data), orjson.loads(event.product_data)
            changes = [change.as_json() for change in diff(before, after)]
    return orjson.dumps(
        {
            "eventId": event.event_id,
            "eventType": kind.value,
            "sellerId": event.seller_id,
            "itemNo": event.item_no,
            "version": event.version,
            "occurredAt": event.occurred_at,
            "changes": changes,
            "productData": None if event.product_data is None else orjson.Fragment(event.product_data),
        }
    )


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
    """A client for the configured product server; use as an async context manager."""

    def __init__(self, settings: Settings, *, connections: int) -> None:
        if settings.product_server_url is None:
            raise SettingsError(
                "MUSTIT_PRODUCT_SERVER_URL is not set: give the product server's address, "
                "or run `mustit up` to have one simulated",
                korean="MUSTIT_PRODUCT_SERVER_URL이 설정되지 않았습니다. 상품 서버의 주소를 설정하거나, "
                "시뮬레이션은 `mustit up`을 실행하세요",
            )
        self._base = yarl.URL(settings.product_server_url, encoded=True).raw_path.rstrip("/")
        self._largest_body = settings.max_body_bytes
        self._read_seconds = settings.product_server_read_seconds
        self._whole_call_seconds = settings.product_server_call_seconds
        self._server = HttpServer(
            settings.product_server_url,
            connections=connections,
            connect_seconds=settings.product_server_connect_seconds,
            read_seconds=self._read_seconds,
            call_seconds=self._whole_call_seconds,
            # It says why it refuses.
            reads_errors=True,
        )
        token = settings.product_server_token
        self._secret = None if token is None else token.get_secret_value().encode()
        known = "" if token is None else f"Authorization: Bearer {token.get_secret_value()}\r\n"
        self._headers = f" HTTP/1.1\r\n{self._server.host_line}{known}Accept: application/json\r\n".encode()
        self._event_head = b"POST %b%b%bContent-Type: application/json\r\n" % (
            self._base.encode(),
            EVENTS_PATH.encode(),
            self._headers,
        )

    async def __aenter__(self) -> "ProductServer":
        await self._server.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._server.__aexit__()

    async def deliver(self, event: ClaimedEvent) -> Answer:
        """Send one event; never raises for what the other side does, or for what is wrong with this row."""
        try:
            kind = event_type(event)
            if kind is None:
                return NOTHING_TO_SAY
            body, key = event_body(event, kind), event.idempotency_key.encode("ascii")
            length = b"Idempotency-Key: %b\r\nContent-Length: %d\r\n\r\n" % (key, len(body))
            answer = await self._server.call(self._event_head + length + body, LARGEST_ANSWER)
        except CallFailed as failed:
            return self._failed(failed)
        except Exception as error:
            # A defect of ours on one row must not stop those beside it. Only where it happened is told: values, and
            # with them the server's token, stay out of the logs.
            where = "".join(traceback.format_tb(error.__traceback__))
            error_kind = type(error).__name__
            with logs.about(outbox_id=event.row_id, seller_id=event.seller_id):
                log.error(  # noqa: TRY400
                    "event cannot be sent", idempotency_key=event.idempotency_key, error=error_kind, where=where
                )
            return Answer(Verdict.RETRY, None, f"{error_kind} while sending it", sent=False)
        verdict = judge(answer.status)
        if verdict is Verdict.DONE:
            return Answer(verdict, answer.status, None)
        wait = 0.0
        if verdict is Verdict.OVERLOADED:
            asked = parse_retry_after(answer.header(b"retry-after"), datetime.now(UTC))
            wait = min(asked or 0.0, LONGEST_RETRY_AFTER_SECONDS)
        return Answer(verdict, answer.status, self._excerpt(answer), retry_after=wait)

    async def look(self, path: str) -> Reply | Answer:
        """What is there, or the answer that says why nothing came back; never raises for what the other side does."""
        request = b"GET %b%b%b\r\n" % (self._base.encode(), path.encode("ascii"), self._headers)
        try:
            answer = await self._server.call(request, self._largest_body)
        except CallFailed as failed:
            return self._failed(failed)
        return Reply(answer.status, _said(answer, self._largest_body))

    def _failed(self, failed: CallFailed) -> Answer:
        if failed.garbled:
            return Answer(Verdict.RETRY, None, "answer that is no HTTP")
        match failed.reason:
            case NetworkReason.CONNECT:
                return Answer(Verdict.UNREACHABLE, None, "no connection could be opened", sent=False)
            case NetworkReason.CONNECT_TIMEOUT:
                return Answer(Verdict.UNREACHABLE, None, "no connection in time", sent=False)
            case NetworkReason.READ_TIMEOUT:
                return Answer(Verdict.RETRY, None, f"no answer within {self._read_seconds:g} s")
            case NetworkReason.DEADLINE:
                return Answer(Verdict.RETRY, None, f"no whole answer within {self._whole_call_seconds:g} s")
            case NetworkReason.BROKEN if failed.answered:
                return Answer(Verdict.RETRY, None, "answer broken off")
            case NetworkReason.BROKEN:
                return Answer(Verdict.DROPPED, None, "connection dropped before the answer")

    def _excerpt(self, answer: HttpAnswer) -> str:
        """What the server said, without anything secret: it may have repeated what it was sent."""
        said = _said(answer, LARGEST_ANSWER)
        if self._secret:
            said = said.replace(self._secret, "…".encode())
        return f"HTTP {answer.status}: {safe_excerpt(said)}"


def _said(answer: HttpAnswer, largest: int) -> bytes:
    """The start of what was said; an endless answer is not read to its end."""
    try:
        return answer.unpacked(largest)
    except TooLarge:
        return answer.body
    except CannotUnpack:
        # The status is clear whatever the body is.
        return b""
