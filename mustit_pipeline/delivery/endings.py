"""What becomes of rows that have their answers: each is judged, and all are written back in one transaction."""

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from uuid import UUID

import structlog
from sqlalchemy import Connection

from mustit_pipeline.delivery.charges import Charge, Ended, charge, pause_seconds
from mustit_pipeline.delivery.credential import fingerprint
from mustit_pipeline.delivery.product_server import Answer, Verdict, event_type
from mustit_pipeline.delivery.sql import breakers
from mustit_pipeline.delivery.sql.breakers import PRODUCT_SERVER, Breaker
from mustit_pipeline.delivery.sql.settling import Settled, settle
from mustit_pipeline.domain.states import OutboxStatus
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.outbox.sql import outbox
from mustit_pipeline.outbox.sql.outbox import Settlement
from mustit_pipeline.settings import Settings
from mustit_pipeline.tallies.sql import tallies
from mustit_pipeline.tallies.sql.tallies import Labels, Subject

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class RelayReport:
    """What a relay did; `waiting` is all that is unsent."""

    sent: int = 0
    superseded: int = 0
    failed: int = 0
    waiting: int = 0
    sent_by_seller: Counter[str] = field(default_factory=Counter[str])


class Endings:
    """Writes back what one relay has sent, and reports it."""

    def __init__(
        self,
        database: Database,
        settings: Settings,
        *,
        report: RelayReport,
        progress: Callable[[RelayReport], None] | None,
    ) -> None:
        self._database = database
        self._settings = settings
        self._cooldown = settings.product_server_breaker_seconds
        self._credential = fingerprint(settings)
        self._report = report
        self._progress = progress

    def write(self, ended: Sequence[Ended], trial: UUID | None) -> None:
        """End the claims of these rows, in the order of their answers."""
        with self._database.transaction() as connection:
            # What is known of the server tells whose fault a doubtful answer is, and nothing of the others.
            doubtful = any(one.answer.is_doubtful for one in ended)
            known = breakers.find(connection, PRODUCT_SERVER) if doubtful else Breaker()
            charged = list(zip(ended, charge(ended, known, trial), strict=True))
            settlements = [settlement(one, charge, self._settings) for one, charge in charged]
            settled = settle(connection, settlements)
            ours = [(one, then) for one, then in zip(ended, settlements, strict=True) if one.row_id in settled]
            # After the products are locked, as a crawl does it. A version that came while its product was in flight
            # speaks for whatever failed then.
            not_alone = [(one.event.seller_id, one.event.item_no) for one, then in ours if _may_have_company(then)]
            superseded = outbox.supersede(connection, not_alone) if not_alone else set[UUID]()
            tallies.add(connection, Subject.DELIVERY, _delays(ours, settled))
            self._tell_breaker(connection, charged, trial)
        self._report.superseded += len(superseded)
        self._count([(one, then) for one, then in ours if one.row_id not in superseded])

    def _tell_breaker(self, connection: Connection, charged: list[tuple[Ended, Charge]], trial: UUID | None) -> None:
        """After everything else is locked: what the latest answers say about the server and our credential."""
        since = list(takewhile(lambda pair: not pair[0].answer.is_well, reversed(charged)))
        if len(since) < len(charged):
            overtaken = any(not one.answer.is_well for one, _ in charged[: -len(since) - 1])
            breakers.record_answer(connection, PRODUCT_SERVER, after_failure=overtaken)
        refused = {one.row_id for one, charge in since if charge is Charge.CREDENTIAL}
        alone = {one.row_id for one, charge in since if charge is Charge.ROW and one.answer.is_doubtful}
        failures = [one for one, charge in since if charge is Charge.SERVER and one.answer.is_doubtful]
        if alone:
            breakers.record_charged(connection, PRODUCT_SERVER, alone)
        if failures and breakers.record_failures(
            connection,
            PRODUCT_SERVER,
            failures=len(failures),
            threshold=self._settings.product_server_breaker_failures,
            cooldown=max(self._cooldown, *(one.answer.retry_after for one in failures)),
            rows={one.row_id for one in failures},
            trial=any(one.row_id == trial for one in failures),
        ):
            log.warning("product server unreachable: breaker open", cooldown_seconds=self._cooldown)
        if refused:
            pause = self._settings.product_server_credential_seconds
            breakers.record_refusal(connection, PRODUCT_SERVER, credential=self._credential, pause=pause, rows=refused)
            log.error("the product server refuses our token: nothing is sent until it is another one")

    def _count(self, settled: Sequence[tuple[Ended, Settlement]]) -> None:
        for one, then in settled:
            if then.status is OutboxStatus.FAILED:
                self._report.failed += 1
            elif then.status is not OutboxStatus.COMPLETED:
                continue
            elif one.answer.verdict is Verdict.STALE:
                self._report.superseded += 1
            elif one.answer.status is not None:
                self._report.sent += 1
                self._report.sent_by_seller[one.event.seller_id] += 1
        if self._progress is not None:
            self._progress(self._report)


def _delays(ours: Iterable[tuple[Ended, Settlement]], settled: Mapping[UUID, Settled]) -> dict[Labels, list[float]]:
    """Seconds from the detection of a change to its delivery, by the type of the event."""
    delays: defaultdict[Labels, list[float]] = defaultdict(list)
    for one, _ in ours:
        if one.answer.is_delivery and (seconds := (row := settled[one.row_id]).seconds) is not None:
            delays[row.event_type,].append(max(0.0, seconds))
    return delays


def settlement(one: Ended, charged: Charge, settings: Settings) -> Settlement:
    """How a row goes on: the domain's rules for what failed, and for what goes out as something else than it was."""
    event, answer = one.event, one.answer
    kind = event_type(event) if answer.sent else None
    if answer.verdict is Verdict.DONE and kind in (None, event.event_type):
        return Settlement(event, answer.status, sent=answer.sent)
    row = event.outbox(settings.outbox_max_retries)
    if kind is not None:
        row.send_as(kind)
    if answer.verdict in (Verdict.DONE, Verdict.STALE):
        row.complete(utc_now())
        # Stale where it was sent before is the echo of our own version, whose answer was lost; at once it is about
        # something that we know nothing of, and from which no changes run.
        held = answer.verdict is Verdict.DONE or event.sent_before
        return Settlement(event, answer.status, row, sent=answer.sent, held=held)
    if charged is Charge.ROW:
        permanent = answer.verdict in (Verdict.REFUSED, Verdict.UNAUTHORIZED)
        row.fail(answer.reason or f"HTTP {answer.status}", permanent=permanent)
        if not row.can_retry():
            return Settlement(event, answer.status, row)
        row.retry()
        return Settlement(event, answer.status, row, delay=_pause(row.retry_count, answer, settings))
    # No try is burnt. A row that waits for the credential stays due, for the moment at which that is another one.
    row.release()
    delay = _pause(1, answer, settings) if charged is Charge.SERVER else 0.0
    return Settlement(event, answer.status, row, delay=delay, sent=answer.sent, doubt=answer.reason)


def _pause(attempt: int, answer: Answer, settings: Settings) -> float:
    base, longest = settings.outbox_retry_base_seconds, settings.relay_longest_backoff_seconds
    return max(pause_seconds(attempt, base, longest, random.random()), answer.retry_after)


def _may_have_company(one: Settlement) -> bool:
    """Whether a version of the same product can wait that a newer one speaks for: an older one, or this one itself."""
    return one.event.version > 1 or one.status is not OutboxStatus.COMPLETED
