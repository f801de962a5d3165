"""The event loop of whoever sends many requests: uvloop, which spends a third less CPU time on each."""

import asyncio
import gc
import signal
import threading
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")

STOPS = (signal.SIGINT, signal.SIGTERM)
# The signals that have asked this process to stop. Their next handler may not say which it was: Dagster makes one
# exception of both.
heard: list[signal.Signals] = []
# Every request makes and drops hundreds of objects: at the usual threshold a sixth of the CPU time goes into looking
# for cycles among them.
COLLECT_AFTER = (20_000, 50, 50)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end on a loop of its own; a signal cancels the work, and reaches its usual handler once that is over.

    An exception that a signal handler raises inside uvloop is lost, so the handlers of others wait their turn.
    """
    caught: list[signal.Signals] = []
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        loop = runner.get_loop()
        task = loop.create_task(work)

        def stop(number: signal.Signals) -> None:
            caught.append(number)
            heard.append(number)
            task.cancel()

        usual, thresholds = _usual_handlers(), gc.get_threshold()
        for number in usual:
            loop.add_signal_handler(number, stop, number)
        gc.set_threshold(*COLLECT_AFTER)
        try:
            return loop.run_until_complete(task)
        except asyncio.CancelledError:
            if not caught:
                raise
        finally:
            gc.set_threshold(*thresholds)
            for number, handler in usual.items():
                loop.remove_signal_handler(number)
                signal.signal(number, handler)
    signal.raise_signal(caught[0])
    raise KeyboardInterrupt


@contextmanager
def heard_signals() -> Generator[None]:
    """Note the signals that reach the body outside of a loop; they go on to their usual handlers."""
    usual = {number: handler for number, handler in _usual_handlers().items() if callable(handler)}

    def note(number: int, frame: FrameType | None) -> None:
        heard.append(signal.Signals(number))
        usual[signal.Signals(number)](number, frame)

    for number in usual:
        signal.signal(number, note)
    try:
        yield
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)


def _usual_handlers() -> dict[signal.Signals, Any]:
    """Who handles the signals that ask us to stop; only the main thread hears them, and an ignored one stays so."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    handlers = {number: signal.getsignal(number) for number in STOPS}
    return {number: handler for number, handler in handlers.items() if handler not in (None, signal.SIG_IGN)}
