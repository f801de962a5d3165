"""Absorbs bodies into the catalog while others are still being fetched, so that little is left afterwards."""

import asyncio
from collections.abc import Callable

import structlog

# Results per pass: a smaller seller is processed as fast after all fetches.
ENOUGH = 1000

log = structlog.get_logger(__name__)


class Absorption:
    """One pass at a time, beside a worker; the remaining bodies are processed after the fetching."""

    def __init__(self, absorb: Callable[[], object]) -> None:
        self._absorb = absorb
        self._pass: asyncio.Task[object] | None = None
        self._stored = 0
        self._failed = False

    def stored(self, results: int) -> None:
        """Report the number of stored results; starts a pass when there are enough."""
        if self._failed or results - self._stored < ENOUGH or (self._pass is not None and not self._pass.done()):
            return
        self._stored = results
        self._pass = asyncio.create_task(asyncio.to_thread(self._absorb))
        self._pass.add_done_callback(self._ended)

    async def end(self) -> None:
        """Wait for the running pass."""
        if self._pass is not None:
            await asyncio.wait([self._pass])

    def _ended(self, ended: asyncio.Task[object]) -> None:
        error = None if ended.cancelled() else ended.exception()
        if error is not None:
            # If the fault persists, processing meets and reports it; the fetching continues.
            self._failed = True
            log.warning("bodies are absorbed after the fetching", error=type(error).__name__)
