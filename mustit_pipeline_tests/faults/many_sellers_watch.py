"""What an operator would see while many sellers are crawled: the depth of the queue, whether UI and daemon answer."""

import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread

import httpx
from sqlalchemy.exc import OperationalError

from mustit_pipeline.settings import Settings
from mustit_pipeline_tests.faults.celery_hosts import DagsterRuns

LOOK_SECONDS = 1.0
QUEUED = "SELECT count(*) FROM runs WHERE status = 'QUEUED'"
SILENCE = "SELECT coalesce(extract(epoch FROM now() at time zone 'utc' - min(timestamp)), 0) FROM daemon_heartbeats"
QUESTION = {"query": "{ runsOrError(limit: 20) { ... on Runs { results { runId status } } } }"}


@dataclass
class Watch:
    """The worst that was seen so far."""

    queued: int = 0
    silence: float = 0.0
    answers: list[float] = field(default_factory=list[float])

    @property
    def slowest(self) -> float:
        """How long the UI took to answer at worst, in seconds."""
        return max(self.answers, default=0.0)

    def look(self, runs: DagsterRuns, url: str) -> None:
        """See once."""
        self.queued = max(self.queued, runs.number(QUEUED))
        self.silence = max(self.silence, float(runs.number(SILENCE)))
        began = time.monotonic()
        httpx.post(url, json=QUESTION, timeout=60, trust_env=False).raise_for_status()
        self.answers.append(time.monotonic() - began)


@contextmanager
def watching(runs: DagsterRuns, settings: Settings) -> Generator[Watch]:
    """Look every second; what is being restarted just then is looked at again."""
    watch, done = Watch(), Event()
    url = f"http://127.0.0.1:{settings.dagster_port}/graphql"

    def keep_looking() -> None:
        while not done.wait(LOOK_SECONDS):
            try:
                watch.look(runs, url)
            except (OperationalError, httpx.HTTPError):
                continue

    thread = Thread(target=keep_looking, daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        done.set()
        thread.join()
