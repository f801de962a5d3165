"""What an operator would see while many sellers are crawled: how many at once, whether UI and daemon answer."""

import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event

import httpx

from mustit_pipeline.settings import Settings
from mustit_pipeline_tests.faults.celery_hosts import UNFINISHED, DagsterRuns

LOOK_SECONDS = 1.0
BACKFILLED = "EXISTS (SELECT FROM run_tags t WHERE t.run_id = runs.run_id AND t.key = 'dagster/backfill')"
CRAWLS = f"SELECT count(*) FROM runs WHERE pipeline_name = 'crawl_seller' AND NOT {BACKFILLED} AND {UNFINISHED}"
BACKFILLING = f"SELECT count(*) FROM runs WHERE {BACKFILLED} AND status IN ('STARTING', 'STARTED')"
SILENCE = "SELECT coalesce(extract(epoch FROM now() at time zone 'utc' - min(timestamp)), 0) FROM daemon_heartbeats"
QUESTION = {"query": "{ runsOrError(limit: 20) { ... on Runs { results { runId status } } } }"}


@dataclass
class Watch:
    """The worst that was seen so far."""

    crawls: int = 0
    backfilling: int = 0
    silence: float = 0.0
    slowest: float = 0.0
    answers: int = 0
    unanswered_since: float | None = None

    def asked(self, at: float) -> None:
        """A request to the UI; one that is repeated for want of a good answer has waited since the first time."""
        if self.unanswered_since is None:
            self.unanswered_since = at

    def refused(self) -> None:
        """No good answer came. Until the first one has come, the UI is only starting."""
        if not self.answers:
            self.unanswered_since = None

    def answered(self, at: float) -> None:
        """A good answer came."""
        self.ended(at)
        self.answers += 1

    def ended(self, at: float) -> None:
        """No more requests; what was not answered by now took as long as that."""
        if self.unanswered_since is not None:
            self.slowest = max(self.slowest, at - self.unanswered_since)
        self.unanswered_since = None

    def look(self, runs: DagsterRuns, url: str) -> None:
        """See once."""
        self.crawls = max(self.crawls, runs.number(CRAWLS))
        self.backfilling = max(self.backfilling, runs.number(BACKFILLING))
        self.silence = max(self.silence, float(runs.number(SILENCE)))
        self.asked(time.monotonic())
        if _answers(url):
            self.answered(time.monotonic())
        else:
            self.refused()


def _answers(url: str) -> bool:
    """Whether the UI answers the question, not only that it cannot."""
    try:
        answer = httpx.post(url, json=QUESTION, timeout=60, trust_env=False)
        return answer.is_success and "results" in answer.json()["data"]["runsOrError"]
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        return False


@contextmanager
def watching(runs: DagsterRuns, settings: Settings) -> Generator[Watch]:
    """Look every second."""
    watch, done = Watch(), Event()
    url = f"http://127.0.0.1:{settings.dagster_port}/graphql"

    def keep_looking() -> None:
        while not done.wait(LOOK_SECONDS):
            watch.look(runs, url)
        watch.ended(time.monotonic())

    with ThreadPoolExecutor(max_workers=1) as pool:
        looking = pool.submit(keep_looking)
        try:
            yield watch
        finally:
            done.set()
        looking.result()
