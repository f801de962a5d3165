"""Sends what waits in the product outbox: a sliding window of deliveries, settled in small batches."""

import asyncio
import os
import random
import socket
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID, uuid4

import structlog

from mustit_pipeline import event_loop
from mustit_pipeline.delivery.events import event_body, event_type
from mustit_pipeline.delivery.product_server import Answer, ProductServer, Verdict
from mustit_pipeline.domain.backoff import backoff_seconds
from mustit_pipeline.domain.states import OutboxStatus
from mustit_pipeline.settings import Settings
from mustit_pipeline.store import breakers, outbox
from mustit_pipeline.store.database import Database
from mustit_pipeline.store.outbox import ClaimedEvent, Settlement

BREAKER = "product_server"
BATCH = 100
LEASE_SECONDS = 60.0
LONGEST_BACKOFF_SECONDS = 300.0
NOTHING_TO_SAY = Answer(Verdict.DONE, None, None, sent=False)
NOT_SENT = Answer(Verdict.UNREACHABLE, None, None, sent=False)

Ended = tuple[ClaimedEvent, Answer]

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
    lease_seconds: float = LEASE_SECONDS,
    progress: Callable[[RelayReport], None] | None = None,
) -> RelayReport:
    """Send until nothing is due, waiting for back-offs and trials as long as the caller's patience lasts."""
    sender = _Relay(
        database,
        settings,
        patience=patience_seconds,
        cooldown=cooldown_seconds or settings.product_server_breaker_seconds,
        lease=lease_seconds,
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

    async def run(self) -> RelayReport:
        async with ProductServer(self._settings, connections=self._window) as server:
            while True:
                await self._send_due(server)
                pause = await asyncio.to_thread(self._pause)
                # Patience is for silence: each answer renews it, an outage that lasts uses it up.
                if pause is None or self._waited + pause > self._patience:
                    break
                nap = min(pause, 1.0) + 0.01
                self._waited += nap
                await asyncio.sleep(nap)
        with self._database.reading() as connection:
            self._report.waiting = outbox.unsent(connection)
        return self._report

    async def _send_due(self, server: ProductServer) -> None:
        """Keep the window full for as long as rows are due; once the server is gone, the rest goes back unsent."""
        backlog: deque[tuple[ClaimedEvent, float]] = deque()
        flying: set[asyncio.Task[Ended]] = set()
        ended: list[Ended] = []
        unreachable = 0
        more = True
        while True:
            if more and len(backlog) < self._window:
                # From before the claim on, so that we never believe a lease to be longer than it is.
                fresh_until = time.monotonic() + self._lease / 2
                claimed = await asyncio.to_thread(self._claim)
                backlog.extend((event, fresh_until) for event in claimed)
                more = len(claimed) == BATCH
            if unreachable >= self._settings.product_server_breaker_failures:
                ended.extend((event, NOT_SENT) for event, _ in backlog)
                backlog.clear()
                more = False
            while backlog and len(flying) < self._window:
                event, fresh_until = backlog.popleft()
                if time.monotonic() > fresh_until:
                    # Its lease might end while it is in flight, and somebody else would send it too.
                    ended.append((event, NOT_SENT))
                    continue
                flying.add(asyncio.create_task(self._deliver(server, event)))
            if flying:
                done, flying = await asyncio.wait(flying, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    event, answer = task.result()
                    ended.append((event, answer))
                    if _answered(answer):
                        unreachable, self._waited = 0, 0.0
                    elif _unreachable(answer):
                        unreachable += 1
            if len(ended) >= self._window or (ended and not flying):
                await asyncio.to_thread(self._settle, ended)
                ended = []
            if not flying and not backlog and not more:
                return

    def _claim(self) -> list[ClaimedEvent]:
        """Take due rows; an open breaker lets none through, and one on trial when its cool-down is over."""
        with self._database.transaction() as connection:
            outbox.release_expired(connection)
            trial_in = breakers.open_for(connection, BREAKER)
            if trial_in is not None and trial_in > 0:
                return []
            claimed, superseded = outbox.claim(
                connection,
                owner=self._owner,
                limit=BATCH if trial_in is None else 1,
                lease_seconds=self._lease,
                max_retries=self._settings.outbox_max_retries,
                trial=trial_in is not None,
            )
            if claimed and trial_in is not None:
                breakers.begin_trial(connection, BREAKER, cooldown=self._cooldown)
        self._report.superseded += superseded
        return claimed

    def _pause(self) -> float | None:
        """Seconds until it is worth looking again; None where nothing waits."""
        with self._database.reading() as connection:
            due_in = outbox.next_due_in(connection)
            trial_in = breakers.open_for(connection, BREAKER)
        return None if due_in is None else max(due_in, trial_in or 0.0)

    async def _deliver(self, server: ProductServer, event: ClaimedEvent) -> Ended:
        kind = event_type(event)
        if kind is None:
            return event, NOTHING_TO_SAY
        event.outbox.goes_out_as(kind)
        return event, await server.deliver(event.outbox.idempotency_key, event_body(event, kind))

    def _settle(self, ended: list[Ended]) -> None:
        answers = [answer for _, answer in ended]
        last_answered = max((place for place, answer in enumerate(answers) if _answered(answer)), default=-1)
        settlements = [
            self._settlement(event, answer, server_is_there=place < last_answered)
            for place, (event, answer) in enumerate(ended)
        ]
        failures = sum(_unreachable(answer) for answer in answers[last_answered + 1 :])
        with self._database.transaction() as connection:
            kept = outbox.settle(connection, settlements)
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
        self._count(ended, kept)

    def _settlement(self, event: ClaimedEvent, answer: Answer, *, server_is_there: bool) -> Settlement:
        row = event.outbox
        if answer.verdict in (Verdict.DONE, Verdict.STALE):
            row.complete(event.occurred_at)
            return Settlement(event, answer.status, sent=answer.sent)
        # An outage burns no try. A connection that breaks although the server goes on answering others is this
        # event's own failure, and would otherwise be tried for ever.
        if answer.verdict is Verdict.UNREACHABLE and not (answer.sent and server_is_there):
            row.release()
            return Settlement(event, None, delay=self._backoff(1) if answer.reason else 0.0, sent=answer.sent)
        row.fail(answer.reason or f"HTTP {answer.status}", permanent=answer.verdict is Verdict.REFUSED)
        if not row.can_retry():
            return Settlement(event, answer.status)
        row.retry()
        return Settlement(event, answer.status, delay=self._backoff(row.retry_count))

    def _backoff(self, attempt: int) -> float:
        return backoff_seconds(attempt, self._settings.retry_base_seconds, LONGEST_BACKOFF_SECONDS, random.random())

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


def _answered(answer: Answer) -> bool:
    """Whether the server was reached; a reading time-out is one of a server that is there."""
    return answer.sent and answer.verdict is not Verdict.UNREACHABLE


def _unreachable(answer: Answer) -> bool:
    """Whether it was tried and nobody was there."""
    return answer.verdict is Verdict.UNREACHABLE and answer is not NOT_SENT
