"""The benchmark's profile sees the threads of the loop that crawls run on."""

import asyncio
import pstats
import sys
import time
from typing import Any

import pytest
import uvloop

from benchmarks import profiling
from mustit_pipeline.foundation import event_loop


def in_a_thread() -> None:
    time.sleep(0.01)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="one profile watches all threads there")
def test_work_in_threads_of_the_fast_loop_is_profiled_on_its_own() -> None:
    """They were those of a loop policy, which nothing had used since uvloop came."""
    usual, threads = uvloop.new_event_loop, profiling.Threads()
    with threads.watched():
        event_loop.run(asyncio.to_thread(in_a_thread))
    entries: dict[Any, Any] = pstats.Stats(*threads.profiles).stats  # pyright: ignore[reportAttributeAccessIssue]
    assert in_a_thread.__name__ in {name for _, _, name in entries}
    assert uvloop.new_event_loop is usual
