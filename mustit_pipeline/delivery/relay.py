"""Sends what waits in the product outbox until nothing is due: the relay's patience, its time, and its end."""

import asyncio
import os
import socket
import time
from collections.abc import Callable
from uuid import uuid4

import structlog

from mustit_pipeline.delivery.claims import Claims
from mustit_pipeline.delivery.endings import Endings, RelayReport
from mustit_pipeline.delivery.product_server import ProductServer
from mustit_pipeline.delivery.window import Window
from mustit_pipeline.foundation import event_loop, logs
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.outbox.sql import outbox
from mustit_pipeline.settings import Settings

log = structlog.get_logger(__name__)


def relay(
    database: Database,
    settings: Settings,
    *,
    patience_seconds: float = 0.0,
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
        progress: Callable[[RelayReport], None] | None,
        report: RelayReport,
    ) -> None:
        self._database = database
        self._settings = settings
        self._patience = patience
        self._report = report
        self._owner = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"
        self._ends_at = time.monotonic() + settings.relay_run_seconds
        self._claims = Claims(database, settings, owner=self._owner, ends_at=self._ends_at)
        self._endings = Endings(database, settings, report=report, progress=progress)
        self._window: Window | None = None
        self._waited = 0.0

    async def run(self) -> RelayReport:
        try:
            async with ProductServer(self._settings, connections=self._settings.relay_concurrent_sends) as server:
                with logs.about(relay=self._owner):
                    try:
                        while True:
                            self._claims.look_for_silent_senders()
                            self._window = Window(self._settings, self._claims, server, self._endings)
                            await self._window.run()
                            if not await self._rest(answered=self._window.answers > 0):
                                break
                    except asyncio.CancelledError:
                        await self._stop()
                        raise
        finally:
            self._report.superseded += self._claims.superseded
        self._count_waiting()
        return self._report

    async def _rest(self, *, answered: bool) -> bool:
        """Wait until something is due again; false where nothing is, or the relay's patience or time is over."""
        if answered:
            self._waited = 0.0
        pause = await asyncio.to_thread(self._claims.due_in)
        # Patience is for silence: each answer renews it, an outage that lasts uses it up.
        if pause is None or self._waited + pause > self._patience or time.monotonic() > self._ends_at:
            return False
        nap = min(pause, 1.0) + 0.01
        self._waited += nap
        await asyncio.sleep(nap)
        return True

    async def _stop(self) -> None:
        """We are asked to stop; a database that is gone now must not turn that into a failure, since leases end."""
        try:
            if self._window is not None:
                await self._window.wind_down(self._settings.relay_grace_seconds)
            self._count_waiting()
        except Exception as error:
            log.warning("claimed events wait until their lease ends", error=type(error).__name__)

    def _count_waiting(self) -> None:
        with self._database.reading() as connection:
            self._report.waiting = outbox.unsent(connection)
