"""From raw bodies to versions: absorb the bodies, then publish products whose state changed."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from mustit_pipeline.catalog.absorbing import absorb, read_ahead
from mustit_pipeline.catalog.publishing import judge_changes, publish_ready
from mustit_pipeline.catalog.reading import USUAL_READING, ReadingRules
from mustit_pipeline.catalog.sql import publication, raw
from mustit_pipeline.catalog.sql.publication import NewVersion, Unpublished
from mustit_pipeline.domain.change_hold import BeliefRules, Suspicion
from mustit_pipeline.domain.limits import RAW_MAX_ATTEMPTS
from mustit_pipeline.domain.states import LifeCycle
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.database import Database, database_time
from mustit_pipeline.foundation.liveness import hold_liveness


@dataclass(frozen=True, slots=True)
class BatchSize:
    """The size of one transaction: large enough to be fast, small enough for memory and locks."""

    pages: int = 2
    bodies: int = 500
    versions: int = 500


USUAL_BATCH = BatchSize()


@dataclass(slots=True)
class ProcessingReport:
    """The result of processing a seller's raw bodies."""

    bodies: int = 0
    failed_bodies: int = 0
    versions: Counter[LifeCycle] = field(default_factory=Counter[LifeCycle])
    changes: Counter[str] = field(default_factory=Counter[str])
    # Set if nothing was published because too many changes looked wrong.
    held: Suspicion | None = None

    def count_bodies(self, processed: int, failed: int) -> None:
        """Bodies that are processed, and how many of them could not be read."""
        self.bodies += processed
        self.failed_bodies += failed

    def count_versions(self, published: Iterable[NewVersion]) -> None:
        """Versions that are published, and their changes."""
        for version in published:
            self.versions[version.life_cycle] += 1
            self.changes.update(version.change_types)


USUAL_RULES = BeliefRules()


def catalog_work(seller_id: str) -> str:
    """The name of the liveness lock that a processor of this seller holds."""
    return f"catalog {seller_id}"


def process(
    database: Database,
    seller_id: SellerId,
    *,
    now: Callable[[], datetime],
    batch: BatchSize = USUAL_BATCH,
    raw_attempts: int = RAW_MAX_ATTEMPTS,
    rules: BeliefRules = USUAL_RULES,
    reading_rules: ReadingRules = USUAL_READING,
    progress: Callable[[ProcessingReport], None] | None = None,
) -> ProcessingReport:
    """Process all waiting bodies of a seller, one transaction per batch.

    If too many changes are suspicious, all bodies are absorbed and no change is published.
    """
    report = ProcessingReport()
    judged_at: datetime | None = None
    following = partial(read_ahead, database, seller_id, reading_rules, pages=batch.pages, bodies=batch.bodies)
    # The next bodies are parsed and merged while PostgreSQL stores the last ones.
    with hold_liveness(database, catalog_work(seller_id.value)), ThreadPoolExecutor(1) as reader:
        with database.transaction() as connection:
            raw.lock_catalog(connection, seller_id.value)
            raw.retry_failed(connection, seller_id.value, attempts=raw_attempts)
            # Most bodies of most crawls are unchanged: they are not parsed.
            report.bodies += raw.settle_unchanged(connection, seller_id.value)
        coming = reader.submit(following)
        while True:
            ahead = coming.result()
            coming = reader.submit(following, beside=ahead.attempts)
            with database.transaction() as connection:
                raw.lock_catalog(connection, seller_id.value)
                report.count_bodies(*absorb(connection, seller_id.value, ahead))
                # Changes are judged together, so that none is published before all are known. Products that this or
                # another processor absorbs meanwhile are judged with the remaining ones.
                ready: Sequence[Unpublished] = ()
                if ahead.attempts:
                    judged_at = None
                else:
                    ready = publication.unpublished(connection, seller_id.value, batch.versions)
                    if judged_at is None or any(entry.updated_at > judged_at for entry in ready):
                        report.held = judge_changes(connection, seller_id, rules, now())
                        judged_at = database_time(connection)
                    if report.held is not None:
                        ready = ()
                published = publish_ready(connection, seller_id, ready, now())
            report.count_versions(published)
            if progress is not None:
                progress(report)
            if not ahead.attempts and not published:
                return report


def absorb_waiting(
    database: Database,
    seller_id: SellerId,
    *,
    batch: BatchSize = USUAL_BATCH,
    reading_rules: ReadingRules = USUAL_READING,
) -> ProcessingReport:
    """Absorb the waiting bodies of a seller while more are being fetched; judging and publishing come later."""
    report = ProcessingReport()
    while True:
        # In every round, because unchanged bodies keep arriving; they need no parsing.
        with database.transaction() as connection:
            raw.lock_catalog(connection, seller_id.value)
            report.bodies += raw.settle_unchanged(connection, seller_id.value)
        ahead = read_ahead(database, seller_id, reading_rules, pages=batch.pages, bodies=batch.bodies)
        if not ahead.attempts:
            return report
        with database.transaction() as connection:
            raw.lock_catalog(connection, seller_id.value)
            report.count_bodies(*absorb(connection, seller_id.value, ahead))
        if ahead.is_rest:
            # What has come in meanwhile waits for the next pass: transactions for few bodies cost as much as for many.
            return report
