"""Stored bodies, processed once more after a fix and without crawling again."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from mustit_pipeline.catalog.absorbing import remerge
from mustit_pipeline.catalog.processing import USUAL_RULES, ProcessingReport, process
from mustit_pipeline.catalog.reading_rules import USUAL_READING, ReadingRules
from mustit_pipeline.catalog.sql import raw
from mustit_pipeline.domain.change_hold import BeliefRules
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.database import Database


@dataclass(frozen=True, slots=True)
class Replay:
    """What a replay did: a report per seller, and how many bodies a newer one of the same call has made pointless."""

    reports: dict[str, ProcessingReport]
    reopened: int
    outdated: int


@dataclass(frozen=True, slots=True)
class Replaying:
    """How far a replay has come: bodies processed so far, of how many."""

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
    """Process the failed bodies of one seller or of all, however often they have been tried."""
    with database.reading() as connection:
        failed = raw.count_failed(connection, seller_id, since, until)
    reports: dict[str, ProcessingReport] = {}
    reopened = done = 0

    def tell(report: ProcessingReport) -> None:
        if progress is not None:
            # Bodies that waited anyway are processed on the way.
            bodies = done + report.bodies
            progress(Replaying(bodies, max(sum(failed.values()), bodies)))

    for seller in failed:
        with database.transaction() as connection:
            # In turns with whoever processes this seller: a body that it has just absorbed is newer, and is seen to be.
            raw.lock_catalog(connection, seller)
            opened = raw.replay_failed(connection, seller, since, until)
        if opened:
            reopened += opened
            reports[seller] = process(
                database, SellerId(seller), now=now, rules=rules, reading_rules=reading_rules, progress=tell
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
    """Read the newest stored bodies of a seller anew, processed ones too: what the rules make of them now.

    A body that says what it said is not merged again. Products are, from what is known of them, for the rules of
    merging may have changed too. Under unchanged rules nothing comes of it. Whoever is stopped on the way leaves bodies
    that wait, and the seller's next processing takes them.
    """
    with database.transaction() as connection:
        raw.lock_catalog(connection, seller_id.value)
        remerge(connection, seller_id.value)
        raw.reopen_newest(connection, seller_id.value)
    return process(database, seller_id, now=now, rules=rules, reading_rules=reading_rules)
