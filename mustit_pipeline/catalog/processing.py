"""From raw bodies to versions: absorb the bodies, then publish products whose state changed."""

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime

import orjson
from sqlalchemy import Connection

from mustit_pipeline.catalog.absorbing import Prepared, absorb, prepare
from mustit_pipeline.catalog.diff import diff
from mustit_pipeline.catalog.guard import judge_changes
from mustit_pipeline.catalog.publishing import publish_versions
from mustit_pipeline.catalog.reading import USUAL_READING, Reading, ReadingRules, read
from mustit_pipeline.catalog.sql import products, publication, raw
from mustit_pipeline.catalog.sql.publication import NewVersion, Unpublished
from mustit_pipeline.catalog.sql.raw import RawFailure
from mustit_pipeline.domain.change_hold import BeliefRules, Suspicion
from mustit_pipeline.domain.limits import RAW_MAX_ATTEMPTS
from mustit_pipeline.domain.states import LifeCycle, TaskType
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.database import Database, database_time
from mustit_pipeline.foundation.liveness import hold_liveness

UNLISTED = "INVARIANT_PRODUCT_UNLISTED"


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
    # The next bodies are parsed and merged while PostgreSQL stores the last ones.
    with hold_liveness(database, catalog_work(seller_id.value)), ThreadPoolExecutor(1) as reader:
        with database.transaction() as connection:
            raw.lock_catalog(connection, seller_id.value)
            raw.retry_failed(connection, seller_id.value, attempts=raw_attempts)
            # Most bodies of most crawls are unchanged: they are not parsed.
            report.bodies += raw.settle_unchanged(connection, seller_id.value)
        coming = reader.submit(_read_next, database, seller_id, batch, reading_rules, [])
        while True:
            reading, prepared = coming.result()
            coming = reader.submit(_read_next, database, seller_id, batch, reading_rules, reading.raw_ids)
            with database.transaction() as connection:
                raw.lock_catalog(connection, seller_id.value)
                _absorb_batch(connection, seller_id, reading, prepared, report)
                # Changes are judged together, so that none is published before all are known. Products that this or
                # another processor absorbs meanwhile are judged with the remaining ones.
                ready: list[Unpublished] = []
                if reading.raw_ids:
                    judged_at = None
                else:
                    ready = publication.unpublished(connection, seller_id.value, batch.versions)
                    if judged_at is None or any(entry.updated_at > judged_at for entry in ready):
                        report.held = judge_changes(connection, seller_id, rules, now())
                        judged_at = database_time(connection)
                    if report.held is not None:
                        ready = []
                published = publish(connection, seller_id, ready, now(), report)
            if progress is not None:
                progress(report)
            if not reading.raw_ids and not published:
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
        reading, prepared = _read_next(database, seller_id, batch, reading_rules, [])
        if not reading.raw_ids:
            return report
        with database.transaction() as connection:
            raw.lock_catalog(connection, seller_id.value)
            _absorb_batch(connection, seller_id, reading, prepared, report)
        if _is_rest(reading, batch):
            # What has come in meanwhile waits for the next pass: transactions for few bodies cost as much as for many.
            return report


def _is_rest(reading: Reading, batch: BatchSize) -> bool:
    """Whether these are the last bodies that waited, listings aside."""
    listed = any(said.source is TaskType.MINISHOP for said in reading.statements)
    return not listed and len(reading.raw_ids) < batch.bodies


def _read_next(
    database: Database, seller_id: SellerId, batch: BatchSize, rules: ReadingRules, beside: Sequence[int]
) -> tuple[Reading, dict[int, Prepared]]:
    """The bodies after those being absorbed, parsed and merged."""
    with database.reading() as connection:
        rows = raw.pending(connection, seller_id.value, pages=batch.pages, products=batch.bodies, beside=beside)
    reading = read(rows, seller_id, rules)
    with database.reading() as connection:
        return reading, prepare(connection, seller_id.value, reading.statements)


def _absorb_batch(
    connection: Connection,
    seller_id: SellerId,
    reading: Reading,
    prepared: dict[int, Prepared],
    report: ProcessingReport,
) -> None:
    if not reading.attempts:
        return
    # They were read outside of this transaction: another processor may have processed them, or a worker may have stored
    # a listing page, meanwhile.
    ours = raw.still_next(connection, seller_id.value, reading.attempts)
    if not ours:
        return
    statements = [statement for statement in reading.statements if statement.raw_id in ours]
    failures = [failure for failure in reading.failures if failure.raw_id in ours]
    if len(ours) < len(reading.attempts):
        prepared = {}
    known = products.lock_known(connection, seller_id.value, [statement.item_no for statement in statements])
    for statement in statements:
        if statement.item_no not in known and statement.source is not TaskType.MINISHOP:
            reason = f"no listing has shown item {statement.item_no} yet; it is tried again"
            failures.append(RawFailure(statement.raw_id, UNLISTED, reason))
    absorb(
        connection,
        seller_id.value,
        known,
        [statement for statement in statements if statement.item_no in known],
        prepared,
    )
    failed = {failure.raw_id for failure in failures}
    raw.mark_processed(connection, [raw_id for raw_id in ours if raw_id not in failed])
    raw.mark_failed(connection, failures)
    report.bodies += len(ours)
    report.failed_bodies += len(failures)


def publish(
    connection: Connection, seller_id: SellerId, ready: Sequence[Unpublished], now: datetime, report: ProcessingReport
) -> int:
    """Turn products that are ready into versions; returns their number."""
    if not ready:
        return 0
    execution_id = publication.publishing_execution(connection, seller_id)
    if execution_id is None:
        return 0
    versions = [_next_version(entry) for entry in ready]
    publish_versions(connection, seller_id, execution_id, versions, now)
    for version in versions:
        report.versions[version.life_cycle] += 1
        report.changes.update(version.change_types)
    return len(versions)


def _next_version(entry: Unpublished) -> NewVersion:
    product = entry.product
    known = product.version > 0
    if product.is_deleted:
        product.restore()
        life_cycle = LifeCycle.RESTORED if known else LifeCycle.CREATED
    else:
        life_cycle = LifeCycle.UPDATED if known else LifeCycle.CREATED
    product.publish()
    changes = (
        diff(orjson.loads(entry.published_data), orjson.loads(entry.data))
        if life_cycle is LifeCycle.UPDATED and entry.data is not None and entry.published_data is not None
        else []
    )
    types = sorted({change.type.value for change in changes})
    return NewVersion(product, life_cycle, types, [change.as_json() for change in changes], None, entry.data_hash)
