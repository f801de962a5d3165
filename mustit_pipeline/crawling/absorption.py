"""Bodies absorbed into the catalog while others are still being fetched, so that little is left to do afterwards."""

import asyncio
from collections.abc import Callable

import structlog

# Results worth a pass: a seller with fewer is processed as fast when all of it is there.
ENOUGH = 1000

log = structlog.get_logger(__name__)


class Absorption:
    """One pass at a time, beside a worker; what is left is processed when the fetching has ended."""

    def __init__(self, absorb: Callable[[], object]) -> None:
        self._absorb = absorb
        self._pass: asyncio.Task[object] | None = None
        self._stored = 0
        self._failed = False

    def stored(self, results: int) -> None:
        """So many results are stored by now."""
        if self._failed or results - self._stored < ENOUGH or (self._pass is not None and not self._pass.done()):
            return
        self._stored = results
        self._pass = asyncio.create_task(asyncio.to_thread(self._absorb))
        self._pass.add_done_callback(self._ended)

    async def end(self) -> None:
        """Wait for the pass under way."""
        if self._pass is not None:
            await asyncio.wait([self._pass])

    def _ended(self, ended: asyncio.Task[object]) -> None:
        error = None if ended.cancelled() else ended.exception()
        if error is not None:
            # Processing meets the same fault if it lasts, and reports it; the fetching goes on.
            self._failed = True
            log.warning("bodies are absorbed when the fetching has ended", error=type(error).__name__)
