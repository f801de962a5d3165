"""`mustit worker`: take crawl tasks from the queue, on this host, beside any number of others."""

import math
import time
from typing import Annotated

import typer

from mustit_pipeline.cli.list_options import LARGEST_NUMBER
from mustit_pipeline.cli.output import Json, err, print_outcome
from mustit_pipeline.cli.runtime import runtime
from mustit_pipeline.cli.stopping import taken
from mustit_pipeline.crawling.result_buffer import WorkReport
from mustit_pipeline.crawling.standalone_worker import serve
from mustit_pipeline.foundation import event_loop

TELL_SECONDS = 60.0


class _Tally:
    """The worker's results so far, printed from time to time."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._told = time.monotonic()
        self._before = WorkReport()
        self._latest = WorkReport()

    def follow(self, report: WorkReport) -> None:
        """Count a stored batch; a new report object belongs to a restarted worker."""
        if report is not self._latest:
            self._before, self._latest = self.total(), report
        if not self._quiet and time.monotonic() - self._told >= TELL_SECONDS:
            self._told = time.monotonic()
            err.print(sentence(self.total()), highlight=False)

    def total(self) -> WorkReport:
        """The sum of all reports."""
        before, latest = self._before, self._latest
        return WorkReport(
            before.completed + latest.completed,
            before.failed + latest.failed,
            before.requests + latest.requests,
            before.throttled + latest.throttled,
        )


def worker(
    seconds: Annotated[
        float | None,
        typer.Option(min=0, max=LARGEST_NUMBER, help="Stop after so many seconds; without it on Ctrl-C or SIGTERM."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Take crawl tasks of every running crawl until Ctrl-C or SIGTERM; requests in flight end within the grace time.

    Crawls are opened, planned and ended by Dagster's runs or `mustit crawl`; a worker only adds capacity. Run as many
    as you like, on any host with the databases, Redis, MUSTIT_BASE_URL and secrets of the host where `mustit up` runs.

    Example: `mustit worker --seconds 600`
    """
    tally = _Tally(quiet=as_json)
    with runtime() as ground:
        _ = ground.settings.marketplace_url
        if not as_json:
            err.print("waiting for tasks of running crawls; Ctrl-C stops", highlight=False)
        # A signal is the usual end of a worker, after its cleanup.
        with taken():
            event_loop.run(
                serve(ground.database, ground.settings, math.inf if seconds is None else seconds, tally.follow)
            )
    total = tally.total()
    print_outcome(
        {
            "completedTasks": total.completed,
            "failedTasks": total.failed,
            "requests": total.requests,
            "throttled": total.throttled,
        },
        sentence(total),
        as_json=as_json,
    )


def sentence(report: WorkReport) -> str:
    """A worker's report in one line."""
    return (
        f"{report.completed:,} tasks completed, {report.failed:,} failed, "
        f"{report.requests:,} requests, {report.throttled:,} of them throttled"
    )
