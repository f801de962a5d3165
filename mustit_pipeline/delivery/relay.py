"""Sends what waits in the product outbox, and decides from each answer how its row goes on."""

import asyncio
import os
import random
import socket
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID, uuid4

import structlog
from sqlalchemy import Connection

from mustit_pipeline import event_loop
from mustit_pipeline.delivery.events import event_body, event_type
from mustit_pipeline.delivery.flakiness import is_flaky, may_be_chance
from mustit_pipeline.delivery.product_server import NOT_SENT, NOTHING_TO_SAY, Answer, ProductServer, Verdict
from mustit_pipeline.delivery.window import Ended, Ports, Window
from mustit_pipeline.domain.backoff import backoff_seconds
from mustit_pipeline.domain.states import OutboxStatus
from mustit_pipeline.settings import Settings
from mustit_pipeline.store import breakers, outbox, settlements
from mustit_pipeline.store.database import Database
from mustit_pipeline.store.outbox import ClaimedEvent, Wanted
from mustit_pipeline.store.settlements import Settlement

BREAKER = "product_server"
# A call that has used up this share of the time for its answer hangs: a second of the usual five.
HANGING_SHARE = 0.2

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class RelayReport:
    """What a relay did; `waiting` is all that is unsent."""

    sent: int = 0
    superseded: int = 0
    failed: int = 0
    waiting: int = 0
    sent_by_seller: Counter[str] = field(default_factory=Counter[str])


def relay(
    database: Database,
    settings: Settings,
    *,
    patience_seconds: float = 0.0,
    cooldown_seconds: float | None = None,
    lease_seconds: float | None = None,
    progress: Callable[[RelayReport], None] | None = None,
) -> RelayReport:
    """Send until nothing is due or RELAY_RUN_SECONDS are over.

    It waits for back-offs and trials as long as the caller's patience lasts.
    """
    sender = _Relay(
        database,
        settings,
        patience=patience_seconds,
        cooldown=cooldown_seconds or settings.product_server_breaker_seconds,
        lease=lease_seconds or settings.relay_lease_seconds,
        progress=progress,
    )
    return event_loop.run(sender.run())


class _Relay:
    def __init__(
        self,
        database: Database,
        settings: Settings,
        *,
        patience: float,
        cooldown: float,
        lease: float,
        progress: Callable[[RelayReport], None] | None,
    ) -> None:
        self._database = database
        self._settings = settings
        self._patience = patience
        self._cooldown = cooldown
        self._lease = lease
        self._progress = progress
        self._owner = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"
        self._report = RelayReport()
        self._waited = 0.0
        self._window = settings.relay_concurrent_sends
        self._ends_at = time.monotonic() + settings.relay_run_seconds

    async def run(self) -> RelayReport:
        async with ProductServer(self._settings, connections=self._window) as server:
            while True:
                await self._send_due(server)
                pause = await asyncio.to_thread(self._pause)
                # Patience is for silence: each answer renews it, an outage that lasts uses it up.
                if pause is None or self._waited + pause > self._patience or time.monotonic() > self._ends_at:
                    break
                nap = min(pause, 1.0) + 0.01
                self._waited += nap
                await asyncio.sleep(nap)
        with self._database.reading() as connection:
            self._report.waiting = outbox.unsent(connection)
        return self._report

    async def _send_due(self, server: ProductServer) -> None:
        window = Window(
            Ports(self._claim, lambda event: self._deliver(server, event), self._settle),
            size=self._window,
            batch=self._settings.relay_batch,
            lease_seconds=self._lease,
            hanging_seconds=self._settings.product_server_read_seconds * HANGING_SHARE,
            breaker=self._settings.product_server_breaker_failures,
        )
        await window.run()
        if window.answers:
            self._waited = 0.0

    def _claim(self, wanted: Wanted) -> tuple[list[ClaimedEvent], int]:
        """Take due rows; an open breaker lets none through, and one on trial when its cool-down is over."""
        if time.monotonic() > self._ends_at:
            return [], 0
        with self._database.transaction() as connection:
            outbox.release_expired(connection)
            # Whoever waited for somebody else's claim sees the trial that has begun with it.
            outbox.take_turns(connection)
            trial_in = breakers.open_for(connection, BREAKER)
            if trial_in is not None and trial_in > 0:
                return [], 0
            claimed, superseded = outbox.claim(
                connection,
                owner=self._owner,
                limit=self._settings.relay_batch,
                lease_seconds=self._lease,
                max_retries=self._settings.outbox_max_retries,
                wanted=wanted,
                trial=trial_in is not None,
            )
            if trial_in is not None:
                claimed = self._on_trial(connection, claimed)
        self._report.superseded += superseded
        return claimed, superseded

    def _on_trial(self, connection: Connection, claimed: list[ClaimedEvent]) -> list[ClaimedEvent]:
        """One row asks whether the server is back; those that send nothing need no server, the others wait on."""
        speaking = [event for event in claimed if event_type(event) is not None]
        if not speaking:
            return claimed
        breakers.begin_trial(connection, BREAKER, cooldown=self._cooldown)
        asking, *waiting = sorted(speaking, key=lambda event: (event.attempts, event.due_at))
        given_back = [self._settlement(event, NOT_SENT, server_is_there=False) for event in waiting]
        settlements.settle(connection, given_back)
        return [event for event in claimed if event is asking or event_type(event) is None]

    def _pause(self) -> float | None:
        """Seconds until it is worth looking again; None where nothing waits."""
        with self._database.reading() as connection:
            due_in = outbox.next_due_in(connection)
            trial_in = breakers.open_for(connection, BREAKER)
        return None if due_in is None else max(due_in, trial_in or 0.0)

    async def _deliver(self, server: ProductServer, event: ClaimedEvent) -> Ended:
        try:
            return event, await self._answer(server, event)
        except Exception as error:
            # A defect of ours on one row must not stop those beside it. Only where it happened is told: values, and
            # with them the server's token, stay out of the logs.
            where = "".join(traceback.format_tb(error.__traceback__))
            kind, key = type(error).__name__, event.outbox.idempotency_key
            log.error("event cannot be sent", idempotency_key=key, error=kind, where=where)  # noqa: TRY400
            return event, Answer(Verdict.RETRY, None, f"{kind} while sending it", sent=False)

    async def _answer(self, server: ProductServer, event: ClaimedEvent) -> Answer:
        kind = event_type(event)
        if kind is None:
            return NOTHING_TO_SAY
        event.outbox.goes_out_as(kind)
        return await server.deliver(event.outbox.idempotency_key, event_body(event, kind))

    def _settle(self, ended: list[Ended]) -> None:
        answers = [answer for _, answer in ended]
        last_answered = max((place for place, answer in enumerate(answers) if answer.answered), default=-1)
        judged = [
            self._settlement(event, answer, server_is_there=place < last_answered)
            for place, (event, answer) in enumerate(ended)
        ]
        failures = sum(answer.unreachable for answer in answers[last_answered + 1 :])
        with self._database.transaction() as connection:
            luckless = [s for s, answer in zip(judged, answers, strict=True) if _given_up(s) and may_be_chance(answer)]
            excused = self._excused(connection, luckless)
            kept = settlements.settle(connection, [excused.get(s.event.outbox.id.value, s) for s in judged])
            # After the products are locked, as a crawl does it. A version that came while its product was in flight
            # speaks for whatever failed then.
            settled = [event.outbox for event, _ in ended if event.outbox.id.value in kept]
            superseded = outbox.supersede(connection, settled)
            if last_answered >= 0:
                breakers.succeeded(connection, BREAKER)
            if failures and breakers.failed(
                connection,
                BREAKER,
                failures=failures,
                threshold=self._settings.product_server_breaker_failures,
                cooldown=self._cooldown,
            ):
                log.warning("product server unreachable: breaker open", cooldown_seconds=self._cooldown)
        self._report.superseded += len(superseded)
        self._count(ended, kept - superseded)

    def _settlement(self, event: ClaimedEvent, answer: Answer, *, server_is_there: bool) -> Settlement:
        row = event.outbox
        if answer.verdict in (Verdict.DONE, Verdict.STALE):
            row.complete(event.occurred_at)
            # Stale where it was sent before is the echo of our own version, whose answer was lost; at once it is about
            # something that we know nothing of, and from which no changes run.
            held = answer.verdict is Verdict.DONE or event.sent_before
            return Settlement(event, answer.status, sent=answer.sent, held=held)
        # An outage burns no try. A connection that breaks although the server goes on answering others is this
        # event's own failure, and would otherwise be tried for ever.
        if answer.verdict is Verdict.UNREACHABLE and not (answer.sent and server_is_there):
            row.release()
            return Settlement(event, None, delay=self._backoff(1) if answer.reason else 0.0, sent=answer.sent)
        row.fail(answer.reason or f"HTTP {answer.status}", permanent=answer.verdict is Verdict.REFUSED)
        return self._tried_again(event, answer.status)

    def _excused(self, connection: Connection, given_up: list[Settlement]) -> dict[UUID, Settlement]:
        """Rows at their end that only had bad luck with a flaky server: they get more tries."""
        since = settlements.deliveries_since(connection, [settlement.event for settlement in given_up])
        excused: dict[UUID, Settlement] = {}
        for settlement in given_up:
            row = settlement.event.outbox
            found = since.get(row.id.value)
            if found is not None and is_flaky(found):
                row.excuse(self._settings.outbox_flaky_factor)
                excused[row.id.value] = self._tried_again(settlement.event, settlement.http_status)
        return excused

    def _tried_again(self, event: ClaimedEvent, status: int | None) -> Settlement:
        """A failed row waits for its next try, as long as it has one."""
        row = event.outbox
        if not row.can_retry():
            return Settlement(event, status)
        row.retry()
        return Settlement(event, status, delay=self._backoff(row.retry_count))

    def _backoff(self, attempt: int) -> float:
        base, longest = self._settings.retry_base_seconds, self._settings.relay_longest_backoff_seconds
        return backoff_seconds(attempt, base, longest, random.random())

    def _count(self, ended: list[Ended], kept: set[UUID]) -> None:
        for event, answer in ended:
            row = event.outbox
            if row.id.value not in kept:
                continue
            if row.status is OutboxStatus.COMPLETED and answer.verdict is Verdict.STALE:
                self._report.superseded += 1
            elif row.status is OutboxStatus.COMPLETED and answer.status is not None:
                self._report.sent += 1
                self._report.sent_by_seller[row.seller_id.value] += 1
            elif row.status is OutboxStatus.FAILED:
                self._report.failed += 1
        if self._progress is not None:
            self._progress(self._report)


def _given_up(settlement: Settlement) -> bool:
    return settlement.event.outbox.status is OutboxStatus.FAILED
