"""A signal ends work on the fast event loop, and still reaches its handler."""

import signal
import subprocess
import sys
import time

import pytest

WORKING = """
import asyncio, signal, sys
from mustit_pipeline.foundation import event_loop

class Interrupted(Exception):
    pass

def handle(number, frame):
    raise Interrupted

if sys.argv[1] == "handled":
    signal.signal(signal.SIGINT, handle)
    signal.signal(signal.SIGTERM, handle)

async def work():
    print("working", flush=True)
    try:
        await asyncio.sleep(60)
    finally:
        print("tidied", flush=True)

try:
    event_loop.run(work())
except (Interrupted, KeyboardInterrupt) as error:
    print(type(error).__name__, flush=True)
"""


@pytest.mark.parametrize(
    ("handler", "number", "said", "code"),
    [
        ("handled", signal.SIGINT, "tidied\nInterrupted\n", 0),
        ("handled", signal.SIGTERM, "tidied\nInterrupted\n", 0),
        ("usual", signal.SIGINT, "tidied\nKeyboardInterrupt\n", 0),
        ("usual", signal.SIGTERM, "tidied\n", -signal.SIGTERM),
    ],
)
def test_a_signal_lets_the_work_tidy_up_and_then_goes_its_usual_way(
    handler: str, number: signal.Signals, said: str, code: int
) -> None:
    with subprocess.Popen([sys.executable, "-c", WORKING, handler], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "working\n"
        started = time.monotonic()
        process.send_signal(number)
        assert process.stdout.read() == said
        assert process.wait(30) == code
    assert time.monotonic() - started < 30
