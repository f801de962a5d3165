"""Ours under cProfile, event loop and worker threads apart: where a crawl's time goes."""

import cProfile
import pstats
import re
import sys
from collections import Counter
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvloop

from benchmarks import ours
from benchmarks.job import Job, Outcome, contend

TOP = 25
PARTS = ("main", "threads")
IDLE = "waiting"
# Own time spent in these is time in which the thread had nothing to do.
_WAITS = ("'poll' of 'select", "'get' of '_queue", "'acquire' of '_thread")
# Compiled code that a profile does not see, by who calls it.
_HIDDEN = {
    ("psycopg/connection.py", "wait"): IDLE,
    ("mustit_pipeline/event_loop.py", "run"): "uvloop, its waiting included",
}
_LIBRARY = re.compile(
    r"site-packages/([^/.]+)|mustit_pipeline/(\w+)|/(asyncio)/|/lib/python[0-9.]+/(?!site-packages)(\w+)"
)


class Threads:
    """The threads of every loop that is made meanwhile, profiled each on its own."""

    def __init__(self) -> None:
        self.profiles: list[cProfile.Profile] = []

    @contextmanager
    def watched(self) -> Generator[None]:
        """Put an executor of ours into the loops that `event_loop.run` makes."""
        usual = uvloop.new_event_loop

        def new_event_loop() -> uvloop.Loop:
            loop = usual()
            loop.set_default_executor(ThreadPoolExecutor(initializer=self._watch))
            return loop

        uvloop.new_event_loop = new_event_loop
        try:
            yield
        finally:
            uvloop.new_event_loop = usual

    def _watch(self) -> None:
        profile = cProfile.Profile()
        try:
            profile.enable()
        except ValueError:
            # From Python 3.12 on one profile watches all threads, and the main one does already.
            return
        self.profiles.append(profile)


def crawl(job: Job) -> Outcome:
    """One profiled crawl; both profiles are left as files."""
    target = Path(sys.argv[2])
    threads = Threads()
    main = cProfile.Profile()
    main.enable()
    try:
        with threads.watched():
            outcome = ours.crawl(job)
    finally:
        main.disable()
    main.dump_stats(target.with_suffix(".main"))
    if threads.profiles:
        pstats.Stats(*threads.profiles).dump_stats(target.with_suffix(".threads"))
    return outcome


def show(target: Path) -> None:
    """The top of both profiles by own time, and the same by library."""
    for part in PARTS:
        path = target.with_suffix(f".{part}")
        if not path.exists():
            continue
        stats = pstats.Stats(str(path))
        print(f"\n{part}: own time by library ({path})")
        for library, seconds in by_library(stats).most_common(20):
            print(f"  {seconds:8.2f} s  {library}")
        print(f"\n{part}: top {TOP} by own time")
        stats.sort_stats("tottime").print_stats(TOP)


def by_library(stats: pstats.Stats) -> Counter[str]:
    """Own time by library; what C functions take is charged to their caller, except for waiting."""
    spent: Counter[str] = Counter()
    entries: dict[Any, Any] = stats.stats  # pyright: ignore[reportAttributeAccessIssue]
    for (file, _, name), (_, _, own, _, callers) in entries.items():
        if any(wait in name for wait in _WAITS):
            spent[IDLE] += own
        elif file == "~" and callers:
            for (caller, _, _), (_, _, share, _) in callers.items():
                spent[_library(caller)] += share
        else:
            place = "/".join(Path(file).parts[-2:])
            spent[_HIDDEN.get((place, name)) or _library(file)] += own
    return spent


def _library(file: str) -> str:
    found = _LIBRARY.search(file)
    if found is None:
        return "other"
    if found[2]:
        return f"mustit_pipeline.{found[2]}"
    return found[1] or found[3] or found[4]


if __name__ == "__main__":
    contend(crawl)
