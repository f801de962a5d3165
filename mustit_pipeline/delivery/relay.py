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

from mustit_pipeline.delivery.charges import Charge, Ended, charge, pause_seconds
from mustit_pipeline.delivery.credential import fingerprint
from mustit_pipeline.delivery.events import event_body, event_type
from mustit_pipeline.delivery.product_server import NOT_SENT, NOTHING_TO_SAY, Answer, ProductServer, Verdict
from mustit_pipeline.delivery.sql import breakers, deliveries
from mustit_pipeline.delivery.sql.breakers import Breaker
from mustit_pipeline.delivery.sql.settling import settle
from mustit_pipeline.delivery.window import Ports, Window
from mustit_pipeline.domain.states import OutboxStatus
from mustit_pipeline.foundation import event_loop, logs
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.outbox.sql import outbox
from mustit_pipeline.outbox.sql.outbox import ClaimedEvent, Wanted
from mustit_pipeline.outbox.sql.settlements import Settlement
from mustit_pipeline.settings import Settings
from mustit_pipeline.tallies.sql import tallies
from mustit_pipeline.tallies.sql.tallies import Subject

BREAKER = "product_server"
# A call that has used up this share of the time for its answer hangs: a second of the usual five.
HANGING_SHARE = 0.2
# How often a relay that goes on sending looks for rows whose sender fell silent; leases last for a minute.
SILENT_SENDERS_SECONDS = 1.0

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
    report: RelayReport | None = None,
) -> RelayReport:
    """Send until nothing is due or RELAY_RUN_SECONDS are over.

    It waits for back-offs and trials as long as the caller's patience lasts. Asked to stop by a signal, it ends within
    its grace time and hands the signal on; a report that was given to it says what was sent until then.
    """
    sender = _Relay(
        database,
        settings,
        patience=patience_seconds,
        cooldown=cooldown_seconds or settings.product_server_breaker_seconds,
        lease=lease_seconds or settings.relay_lease_seconds,
        progress=progress,
        report=report or RelayReport(),
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
        report: RelayReport,
    ) -> None:
        self._database = database
        self._settings = settings
        self._patience = patience
        self._cooldown = cooldown
        self._lease = lease
        self._credential_seconds = settings.product_server_credential_seconds
        self._progress = progress
        self._owner = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"
        self._report = report
        self._credential = fingerprint(settings)
        self._trial: UUID | None = None
        self._window_now: Window | None = None
        self._waited = 0.0
        self._look_for_silent_at = 0.0
        self._window = settings.relay_concurrent_sends
        self._ends_at = time.monotonic() + settings.relay_run_seconds

    async def run(self) -> RelayReport:
        async with ProductServer(self._settings, connections=self._window) as server:
            try:
                with logs.about(relay=self._owner):
                    await self._send_all(server)
            except asyncio.CancelledError:
                await self._give_back()
                raise
        self._count_waiting()
        return self._report

    async def _send_all(self, server: ProductServer) -> None:
        while True:
            await self._send_due(server)
            pause = await asyncio.to_thread(self._pause)
            # Patience is for silence: each answer renews it, an outage that lasts uses it up.
            if pause is None or self._waited + pause > self._patience or time.monotonic() > self._ends_at:
                return
            nap = min(pause, 1.0) + 0.01
            self._waited += nap
            await asyncio.sleep(nap)

    async def _give_back(self) -> None:
        """We are asked to stop; a database that is gone now must not turn that into a failure, since leases end."""
        try:
            if self._window_now is not None:
                await self._window_now.wind_down(self._settings.relay_grace_seconds)
            self._count_waiting()
        except Exception as error:
            log.warning("claimed events wait until their lease ends", error=type(error).__name__)

    def _count_waiting(self) -> None:
        with self._database.reading() as connection:
            self._report.waiting = outbox.unsent(connection)

    async def _send_due(self, server: ProductServer) -> None:
        self._look_for_silent_at = 0.0
        window = self._window_now = Window(
            Ports(self._claim, lambda event: self._deliver(server, event), self._settle),
            size=self._window,
            batch=self._settings.relay_batch,
            lease_seconds=self._lease,
            hanging_seconds=self._settings.product_server_read_seconds * HANGING_SHARE,
            breaker=self._settings.product_server_breaker_failures,
        )
        await window.run()
        self._window_now = None
        if window.answers:
            self._waited = 0.0

    def _claim(self, wanted: Wanted) -> tuple[list[ClaimedEvent], int]:
        """Take due rows; an open breaker lets none through, and one on trial when its cool-down is over."""
        if time.monotonic() > self._ends_at:
            return [], 0
        with self._database.transaction() as connection:
            # A relay that waited for another one's claim sees the trial that began with it.
            outbox.lock_claims(connection)
            if time.monotonic() >= self._look_for_silent_at:
                outbox.release_expired(connection)
                self._look_for_silent_at = time.monotonic() + SILENT_SENDERS_SECONDS
            breaker = breakers.find(connection, BREAKER)
            trial_in = breaker.trial_in_with(self._credential)
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
                claimed = self._on_trial(connection, claimed, breaker)
        self._report.superseded += superseded
        return claimed, superseded

    def _on_trial(self, connection: Connection, claimed: list[ClaimedEvent], breaker: Breaker) -> list[ClaimedEvent]:
        """One row asks whether the server is back; those that send nothing need no server, the others wait on."""
        speaking = [event for event in claimed if event_type(event) is not None]
        if not speaking:
            return claimed
        pause = self._cooldown if breaker.refused_credential is None else self._credential_seconds
        breakers.begin_trial(connection, BREAKER, cooldown=pause, credential=self._credential)
        asking, *waiting = sorted(speaking, key=lambda event: (event.attempts, event.due_at))
        self._trial = asking.row_id
        given_back = [self._settlement(Ended(event, NOT_SENT), Charge.UNCHARGED) for event in waiting]
        settle(connection, given_back)
        return [event for event in claimed if event is asking or event_type(event) is None]

    def _pause(self) -> float | None:
        """Seconds until it is worth looking again; None where nothing waits."""
        with self._database.reading() as connection:
            due_in = outbox.next_due_in(connection)
            trial_in = breakers.find(connection, BREAKER).trial_in_with(self._credential)
        return None if due_in is None else max(due_in, trial_in or 0.0)

    async def _deliver(self, server: ProductServer, event: ClaimedEvent) -> Answer:
        with logs.about(outbox_id=event.row_id, seller_id=event.seller_id):
            try:
                return await self._answer(server, event)
            except Exception as error:
                # A defect of ours on one row must not stop those beside it. Only where it happened is told: values, and
                # with them the server's token, stay out of the logs.
                where = "".join(traceback.format_tb(error.__traceback__))
                kind, key = type(error).__name__, event.idempotency_key
                log.error("event cannot be sent", idempotency_key=key, error=kind, where=where)  # noqa: TRY400
                return Answer(Verdict.RETRY, None, f"{kind} while sending it", sent=False)

    async def _answer(self, server: ProductServer, event: ClaimedEvent) -> Answer:
        kind = event_type(event)
        if kind is None:
            return NOTHING_TO_SAY
        event.outbox.goes_out_as(kind)
        return await server.deliver(event.idempotency_key, event_body(event, kind))

    def _settle(self, ended: list[Ended]) -> None:
        with self._database.transaction() as connection:
            # What is known of the server tells whose fault a doubtful answer is, and nothing of the others.
            doubtful = any(one.answer.is_doubtful for one in ended)
            known = breakers.find(connection, BREAKER) if doubtful else Breaker()
            charges = charge(ended, known, self._trial)
            judged = [self._settlement(one, charged) for one, charged in zip(ended, charges, strict=True)]
            kept = settle(connection, judged)
            # After the products are locked, as a crawl does it. A version that came while its product was in flight
            # speaks for whatever failed then.
            not_alone = [one.event.outbox for one in ended if one.row_id in kept and _may_have_company(one)]
            superseded = outbox.supersede(connection, not_alone) if not_alone else set[UUID]()
            delivered = [one.row_id for one in ended if one.row_id in kept and one.answer.is_delivery]
            tallies.add(connection, Subject.DELIVERY, deliveries.delays(connection, delivered))
            self._tell_breaker(connection, list(zip(ended, charges, strict=True)))
        self._report.superseded += len(superseded)
        self._count(ended, kept - superseded)

    def _tell_breaker(self, connection: Connection, charged: list[tuple[Ended, Charge]]) -> None:
        """After everything else is locked: what the latest answers say about the server and our credential."""
        last_well = max((place for place, (one, _) in enumerate(charged) if one.answer.is_well), default=-1)
        if last_well >= 0:
            breakers.answered(connection, BREAKER)
        since = charged[last_well + 1 :]
        refused = {one.row_id for one, charge in since if charge is Charge.CREDENTIAL}
        alone = {one.row_id for one, charge in since if charge is Charge.ROW and one.answer.is_doubtful}
        failures = [one for one, charge in since if charge is Charge.SERVER and one.answer.is_doubtful]
        if alone:
            breakers.charged(connection, BREAKER, alone)
        if failures and breakers.failed(
            connection,
            BREAKER,
            failures=len(failures),
            threshold=self._settings.product_server_breaker_failures,
            cooldown=max(self._cooldown, *(one.answer.retry_after for one in failures)),
            rows={one.row_id for one in failures},
            trial=any(one.row_id == self._trial for one in failures),
        ):
            log.warning("product server unreachable: breaker open", cooldown_seconds=self._cooldown)
        if refused:
            breakers.refused(
                connection, BREAKER, credential=self._credential, pause=self._credential_seconds, rows=refused
            )
            log.error("the product server refuses our token: nothing is sent until it is another one")

    def _settlement(self, one: Ended, charged: Charge) -> Settlement:
        event, answer = one.event, one.answer
        row = event.outbox
        if answer.verdict in (Verdict.DONE, Verdict.STALE):
            row.complete(event.occurred_at)
            # Stale where it was sent before is the echo of our own version, whose answer was lost; at once it is about
            # something that we know nothing of, and from which no changes run.
            held = answer.verdict is Verdict.DONE or event.sent_before
            return Settlement(event, answer.status, sent=answer.sent, held=held)
        if charged is Charge.ROW:
            permanent = answer.verdict in (Verdict.REFUSED, Verdict.UNAUTHORIZED)
            row.fail(answer.reason or f"HTTP {answer.status}", permanent=permanent)
            if not row.can_retry():
                return Settlement(event, answer.status)
            row.retry()
            return Settlement(event, answer.status, delay=self._pause_of(row.retry_count, answer))
        # No try is burnt. A row that waits for the credential stays due, for the moment at which that is another one.
        row.release()
        delay = self._pause_of(1, answer) if charged is Charge.SERVER else 0.0
        return Settlement(event, answer.status, delay=delay, sent=answer.sent, doubt=answer.reason)

    def _pause_of(self, attempt: int, answer: Answer) -> float:
        base, longest = self._settings.outbox_retry_base_seconds, self._settings.relay_longest_backoff_seconds
        return max(pause_seconds(attempt, base, longest, random.random()), answer.retry_after)

    def _count(self, ended: list[Ended], kept: set[UUID]) -> None:
        for one in ended:
            row, answer = one.event.outbox, one.answer
            if one.row_id not in kept:
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


def _may_have_company(one: Ended) -> bool:
    """Whether a version of the same product can wait that a newer one speaks for: an older one, or this one itself."""
    row = one.event.outbox
    return row.version > 1 or row.status is not OutboxStatus.COMPLETED
