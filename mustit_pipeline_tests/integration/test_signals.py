"""Signals that arrive where no exception can be raised."""

import signal
import subprocess
import sys

WAITING = """
import time
from mustit_pipeline.cli.stopping import Stopped, hear_signals

class Callback:
    def __del__(self):
        print("in a callback", flush=True)
        time.sleep(20)

hear_signals()
try:
    callback = Callback()
    del callback
    time.sleep(20)
except Stopped as stopped:
    stopped.is_taken = True
    print(stopped, flush=True)
"""

SWALLOWING = """
import time
from mustit_pipeline.cli.stopping import Stopped, hear_signals

hear_signals()
try:
    try:
        print("in a library", flush=True)
        time.sleep(20)
    except BaseException:
        pass
    time.sleep(20)
except Stopped as stopped:
    stopped.is_taken = True
    print(stopped, flush=True)
"""


def test_a_signal_that_a_library_swallows_stops_the_command_all_the_same() -> None:
    """Some do while they are imported: `mustit doctor` went on as if Ctrl-C had not been pressed."""
    with subprocess.Popen(
        [sys.executable, "-c", SWALLOWING], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "in a library\n"
        process.send_signal(signal.SIGTERM)
        said, errors = process.communicate(timeout=15)
    assert (said, errors, process.returncode) == ("stopped by SIGTERM\n", "", 0)


def test_a_signal_in_a_callback_that_no_exception_can_leave_stops_the_command_all_the_same() -> None:
    """pydantic calls back into Python in such places while settings are read: a Ctrl-C was lost there."""
    with subprocess.Popen(
        [sys.executable, "-c", WAITING], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "in a callback\n"
        process.send_signal(signal.SIGINT)
        said, errors = process.communicate(timeout=15)
    assert (said, errors, process.returncode) == ("stopped by SIGINT\n", "", 0)
