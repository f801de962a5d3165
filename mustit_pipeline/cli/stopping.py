"""Ctrl-C and SIGTERM: a command that is asked to stop ends quietly, and its exit code names the signal."""

import os
import signal
import socket
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from mustit_pipeline.foundation.event_loop import STOPS, heard

if TYPE_CHECKING:
    import dagster as dg

# After a signal whose exception was lost.
AGAIN_SECONDS = 0.05


class Stopped(BaseException):
    """A signal asked this command to stop. Not a KeyboardInterrupt: Click would make that exit 1."""

    def __init__(self, number: signal.Signals, *, is_taken: bool = True) -> None:
        super().__init__(f"stopped by {number.name}")
        self.number = number
        # Whether code of ours has taken it, so that it is not lost.
        self.is_taken = is_taken

    def __del__(self) -> None:
        if not self.is_taken:
            _send_again(self.number)

    @property
    def exit_code(self) -> int:
        """The exit code that shells and supervisors expect after a signal."""
        return 128 + self.number


def hear_signals() -> None:
    """From now on a signal raises Stopped; a signal that the parent process ignores stays ignored.

    Where the exception is lost, because a library swallows it or it was raised in a callback that no exception can
    leave, the signal is sent again.
    """
    for number in STOPS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)
    sys.unraisablehook = _say_unless_stopped


@contextmanager
def taken() -> Generator[None]:
    """Within it a stop is the usual end."""
    try:
        yield
    except Stopped as stop:
        stop.is_taken = True


def ignore_signals() -> None:
    """A second Ctrl-C must not interrupt the cleanup after the first."""
    for number in STOPS:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def noted_signals() -> Generator[None]:
    """Note the first stop signal during a Dagster run, which installs one handler for both signals.

    Python writes the number of each signal to this socket, whatever its handler does.
    """
    reading, writing = socket.socketpair()
    with reading, writing:
        reading.setblocking(False)
        writing.setblocking(False)
        before = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            if not heard:
                heard.extend(_noted(reading)[:1])


def _noted(reading: socket.socket) -> list[signal.Signals]:
    try:
        numbers = reading.recv(4096)
    except BlockingIOError:
        return []
    return [signal.Signals(number) for number in numbers if number in STOPS]


def raise_if_stopped(result: "dg.ExecuteInProcessResult") -> None:
    """Raise Stopped after a Dagster run that was stopped, whatever its steps' results."""
    number = stopped_by(result)
    if number is not None:
        raise Stopped(number)


def stopped_by(result: "dg.ExecuteInProcessResult") -> signal.Signals | None:
    """The signal that stopped a Dagster run, or came while it ended."""
    interrupted = any(_is_interruption(event) for event in result.all_events)
    return heard[0] if heard else signal.SIGINT if interrupted else None


def _is_interruption(event: "dg.DagsterEvent") -> bool:
    """Whether a signal ended a step, or the whole run before its first step."""
    error = None
    if event.is_step_failure:
        error = event.step_failure_data.error
    elif event.is_job_failure:
        error = event.job_failure_data.error
    return error is not None and error.cls_name == "DagsterExecutionInterruptedError"


def _stop(number: int, frame: FrameType | None) -> None:
    # In no variable: its traceback would hold the variable, and the variable it.
    raise Stopped(signal.Signals(number), is_taken=False)


def _say_unless_stopped(lost: "sys.UnraisableHookArgs") -> None:
    if not isinstance(lost.exc_value, Stopped):
        sys.__unraisablehook__(lost)


def _send_again(number: signal.Signals) -> None:
    if sys.is_finalizing():
        return
    again = threading.Timer(AGAIN_SECONDS, os.kill, [os.getpid(), number])
    again.daemon = True
    again.start()
