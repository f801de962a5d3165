"""Ours with everything on: ledger, leases, hashes, versions, change sets and outbox."""

import base64
from pathlib import Path

from sqlalchemy import make_url, text

from benchmarks.job import Job, Outcome, Stopwatch, contend, peak_bytes
from mustit_pipeline.catalog.processing import process
from mustit_pipeline.crawling.crawl import Crawl
from mustit_pipeline.crawling.planning import PRODUCT_TYPES
from mustit_pipeline.crawling.sql.executions import StoredExecution
from mustit_pipeline.crawling.steering import open_or_join
from mustit_pipeline.domain.states import ExecutionStatus, SweepStatus
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database, make_engine
from mustit_pipeline.settings import Settings

ENOUGH_SECONDS = 3600.0


def settings_of(job: Job, **changed: object) -> Settings:
    """Settings for the job's database and marketplace; limits wide open unless changed."""
    values: dict[str, object] = {
        "base_url": job.base_url,
        "listing_path": job.listing_path,
        "page_size": job.page_size,
        "max_concurrent_requests": job.concurrency,
        "requests_per_hour": 1_000_000,
        "recrawl": job.recrawl,
        "min_request_gap_seconds": job.min_gap_seconds,
    }
    return settings_for(Path(job.home), job.database_url, job.redis_url, **(values | changed))


def settings_for(home: Path, database_url: str, redis_url: str, **values: object) -> Settings:
    """Settings for these servers, with secrets that protect nothing."""
    servers: dict[str, object] = {
        "home": home,
        "database_url": database_url,
        "dagster_database_url": str(make_url(database_url).set(database="mustit_dagster")),
        "redis_url": redis_url,
        "token_key": base64.b64encode(bytes(range(32))).decode(),
        "jwt_secret": "only-for-benchmarks-only-for-benchmarks",
    }
    return Settings(**(servers | values))  # pyright: ignore[reportArgumentType]


def open_database(job: Job) -> Database:
    """An engine with a connection already made."""
    database = Database(make_engine(make_url(job.database_url).set(drivername="postgresql+psycopg")))
    with database.reading() as connection:
        connection.execute(text("SELECT 1"))
    return database


def crawl(job: Job) -> Outcome:
    """One crawl from its opening to its end, as a run of the job does it."""
    settings, seller_id = settings_of(job), SellerId(job.seller_id)
    database = open_database(job)
    try:
        watch = Stopwatch()
        ended = crawl_seller(database, settings, seller_id, watch)
        outcome = watch.outcome()
        outcome.peak_bytes = peak_bytes()
        _read_back(database, ended, outcome)
    finally:
        database.close()
    return outcome


def crawl_seller(database: Database, settings: Settings, seller_id: SellerId, watch: Stopwatch) -> StoredExecution:
    """A seller's crawl stage by stage; what came before the first version was published was absorbing."""
    opened = open_or_join(database, seller_id, triggered_by="benchmark", now=utc_now())
    work = Crawl(database, settings, opened.stored)
    work.sweep(ENOUGH_SECONDS)
    watch.lap("sweep")
    work.fetch_products(PRODUCT_TYPES, ENOUGH_SECONDS)
    watch.lap("fetch")
    # Most bodies were absorbed while others were fetched: there may be none left.
    watch.lap("absorb")
    process(database, seller_id, now=utc_now, progress=lambda report: None if report.versions else watch.lap("absorb"))
    watch.lap("publish")
    return work.end()


def _read_back(database: Database, ended: StoredExecution, outcome: Outcome) -> None:
    """What is stored, and a loud failure where any part of the promise is missing."""
    execution = ended.execution
    if execution.status is not ExecutionStatus.COMPLETED or execution.failed_tasks or execution.remaining:
        raise RuntimeError(f"the crawl ended {execution.status} with {execution.failed_tasks} failed tasks")
    if ended.sweep_status is not SweepStatus.COMPLETE:
        raise RuntimeError("the sweep did not see the whole listing")
    with database.reading() as connection:
        outcome.products = connection.execute(
            text("SELECT count(*) FROM products WHERE complete AND seller_id = :seller"),
            {"seller": execution.seller_id.value},
        ).scalar_one()
        sets = connection.execute(
            text("""
                SELECT c.item_no, c.life_cycle, o.item_no IS NOT NULL AS sent_for FROM product_change_sets c
                LEFT JOIN product_outbox o USING (seller_id, item_no, version) WHERE c.execution_id = :execution
            """),
            {"execution": execution.id.value},
        ).all()
    if not all(row.sent_for for row in sets):
        raise RuntimeError("a version has no outbox row")
    outcome.created = [row.item_no for row in sets if row.life_cycle == "CREATED"]
    outcome.changed = [row.item_no for row in sets if row.life_cycle == "UPDATED"]


if __name__ == "__main__":
    contend(crawl)
