"""Replay: stored bodies processed again after a fix, without a new crawl."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from mustit_pipeline.catalog.absorbing import remerge
from mustit_pipeline.catalog.processing import USUAL_RULES, ProcessingReport, process
from mustit_pipeline.catalog.reading import USUAL_READING, ReadingRules
from mustit_pipeline.catalog.sql import raw
from mustit_pipeline.domain.change_hold import BeliefRules
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.database import Database


@dataclass(frozen=True, slots=True)
class Replay:
    """The result of a replay: a report per seller, and how many bodies a newer one of the same call made obsolete."""

    reports: dict[str, ProcessingReport]
    reopened: int
    outdated: int


@dataclass(frozen=True, slots=True)
class Replaying:
    """Progress of a replay: bodies processed so far, and in total."""

    bodies: int
    total: int


def replay_failed(
    database: Database,
    *,
    seller_id: SellerId | None,
    since: datetime | None,
    until: datetime | None = None,
    now: Callable[[], datetime],
    rules: BeliefRules = USUAL_RULES,
    reading_rules: ReadingRules = USUAL_READING,
    progress: Callable[[Replaying], None] | None = None,
) -> Replay:
    """Process the failed bodies of one seller or of all, whatever their number of attempts."""
    with database.reading() as connection:
        failed = raw.count_failed(connection, seller_id, since, until)
    reports: dict[str, ProcessingReport] = {}
    reopened = done = 0

    def report_progress(report: ProcessingReport) -> None:
        if progress is not None:
            # Bodies that were waiting are processed too.
            bodies = done + report.bodies
            progress(Replaying(bodies, max(sum(failed.values()), bodies)))

    for seller in failed:
        with database.transaction() as connection:
            # Under the lock, a newer body that another processor has just absorbed is seen, and the older one is not
            # reopened.
            raw.lock_catalog(connection, seller)
            opened = raw.replay_failed(connection, seller, since, until)
        if opened:
            reopened += opened
            reports[seller] = process(
                database, SellerId(seller), now=now, rules=rules, reading_rules=reading_rules, progress=report_progress
            )
            done += reports[seller].bodies
    return Replay(reports, reopened, outdated=max(0, sum(failed.values()) - reopened))


def replay_stored(
    database: Database,
    seller_id: SellerId,
    *,
    now: Callable[[], datetime],
    rules: BeliefRules = USUAL_RULES,
    reading_rules: ReadingRules = USUAL_READING,
) -> ProcessingReport:
    """Process the newest stored bodies of a seller again under today's rules, processed ones too.

    Bodies with unchanged content are not merged again. All products are merged again from their stored sources, because
    the rules of merging may have changed too. Under unchanged rules the result is the same. If the replay is
    interrupted, the remaining bodies wait for the seller's next processing.
    """
    with database.transaction() as connection:
        raw.lock_catalog(connection, seller_id.value)
        remerge(connection, seller_id.value)
        raw.reopen_newest(connection, seller_id.value)
    return process(database, seller_id, now=now, rules=rules, reading_rules=reading_rules)
