"""The worker when something breaks beside it: what it holds is stored or given back, and nothing is counted twice."""

import asyncio
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, event
from sqlalchemy.exc import OperationalError

from mustit_pipeline.crawling.crawl import Crawl
from mustit_pipeline.crawling.planning import PRODUCT_TYPES
from mustit_pipeline.crawling.queue import ExecutionQueue
from mustit_pipeline.crawling.recovery import release_expired
from mustit_pipeline.crawling.result_buffer import ResultBuffer, WorkReport
from mustit_pipeline.crawling.results import ResultStore, TaskResult
from mustit_pipeline.crawling.worker import Worker
from mustit_pipeline.foundation import event_loop
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.marketplace.endpoints import Endpoints
from mustit_pipeline_tests.integration.crawling.checks import check_outcomes, number, task_rows
from mustit_pipeline_tests.integration.crawling.child import wait_until
from mustit_pipeline_tests.integration.crawling.sites import HELD, HURT, Site

COUNTING = "SET completed_tasks ="
REQUESTS = "SELECT requests FROM crawling_schedule_executions"


class Broken(Exception):
    """Something beside the worker broke."""


@contextmanager
def breaking(database: Database, part: str, *, after: int, times: int = 1) -> Generator[list[str]]:
    """The connection breaks under a statement, once that has been sent so often."""
    sent: list[str] = []

    def refuse(_: object, cursor: Any, statement: str, *__: object) -> None:
        if part in statement:
            sent.append(statement)
            if after < len(sent) <= after + times:
                cursor.connection.close()

    event.listen(database.engine, "before_cursor_execute", refuse)
    try:
        yield sent
    finally:
        event.remove(database.engine, "before_cursor_execute", refuse)


def test_a_claim_that_fails_stops_the_worker_with_everything_in_flight_stored(site: Site) -> None:
    site.market.settings(latencyMs=100)
    with breaking(site.database, "WITH picked AS", after=4), pytest.raises(OperationalError):
        site.work.fetch_products(PRODUCT_TYPES, 60)

    assert number(site.database, HELD) == number(site.database, HURT) == 0
    rows = check_outcomes(site.database, site.work.stored.execution.id, ended=False)
    # Whatever was asked for is there: nothing was in flight without a waiting reader.
    assert site.asked() == sum(row.bodies for key, row in rows.items() if key.startswith("PRODUCT")) > 0
    site.finish()
    assert site.asked() == 80


def test_a_batch_that_cannot_be_stored_is_stored_at_the_end_and_counted_once(site: Site) -> None:
    site.market.settings(latencyMs=50)
    before = number(site.database, REQUESTS)
    with breaking(site.database, COUNTING, after=0), pytest.raises(OperationalError):
        site.work.fetch_products(PRODUCT_TYPES, 60)

    assert number(site.database, HELD) == number(site.database, HURT) == 0
    rows = check_outcomes(site.database, site.work.stored.execution.id, ended=False)
    assert site.asked() == sum(row.bodies for key, row in rows.items() if key.startswith("PRODUCT")) > 0
    assert number(site.database, REQUESTS) - before == site.asked()
    site.finish()
    assert site.asked() == 80


def test_a_batch_that_was_committed_although_the_answer_was_lost_is_counted_once(site: Site) -> None:
    """Its requests were once counted again, because those are counted under any lease."""
    site.market.settings(latencyMs=50)
    site.market.fault("429", "detail", count=1)
    before = number(site.database, REQUESTS)
    unheard: list[Connection] = []

    def lose_the_answer(connection: Connection) -> None:
        if not unheard and connection.info.pop("counts", False):
            unheard.append(connection)
            lost: Any = connection.connection.dbapi_connection
            lost.commit()
            lost.close()

    def notice(connection: Connection, _: object, statement: str, *__: object) -> None:
        if COUNTING in statement:
            connection.info["counts"] = True

    event.listen(site.database.engine, "before_cursor_execute", notice)
    event.listen(site.database.engine, "commit", lose_the_answer)
    with pytest.raises(OperationalError):
        site.work.fetch_products(PRODUCT_TYPES, 60)
    event.remove(site.database.engine, "commit", lose_the_answer)
    event.remove(site.database.engine, "before_cursor_execute", notice)

    assert unheard
    assert number(site.database, REQUESTS) - before == site.called()
    check_outcomes(site.database, site.work.stored.execution.id, ended=False)
    site.finish()
    assert number(site.database, "SELECT throttled FROM crawling_schedule_executions") == 1


def test_a_database_that_stays_away_leaves_leases_that_end_by_themselves(site: Site) -> None:
    site.market.settings(latencyMs=20)
    short = Crawl(site.database, site.settings(lease_seconds=0.5), site.work.stored)
    with breaking(site.database, COUNTING, after=1, times=99), pytest.raises(OperationalError):
        short.fetch_products(PRODUCT_TYPES, 60)

    assert number(site.database, HELD) > 0
    check_outcomes(site.database, site.work.stored.execution.id, ended=False)
    site.finish()
    # What was not stored is asked for again, and no more than a crash may repeat.
    assert 80 < site.asked() <= 80 + 2 * 10


def test_a_progress_display_that_breaks_loses_no_result_and_counts_none_twice(site: Site) -> None:
    """It once made a stored batch look as if it had not been: it was stored, and its requests counted, again."""
    before = number(site.database, REQUESTS)

    def display(_: WorkReport) -> None:
        raise Broken

    with pytest.raises(Broken):
        site.work.fetch_products(PRODUCT_TYPES, 60, display)

    assert number(site.database, HELD) == number(site.database, HURT) == 0
    check_outcomes(site.database, site.work.stored.execution.id, ended=False)
    assert number(site.database, REQUESTS) - before == site.asked() > 0
    site.finish()
    assert site.asked() == 80


def test_a_cancelled_worker_stores_what_ends_in_the_grace_time_and_keeps_its_leases_meanwhile(site: Site) -> None:
    """Leases were once not renewed while a worker was stopping: another one fetched what it had in flight."""
    site.market.fault("slow", "api", seconds=2)
    over = threading.Event()

    def release_what_expires() -> None:
        while not over.wait(0.05):
            release_expired(site.database, site.work.settings, utc_now())

    async def stop_in_flight(worker: Worker) -> None:
        working = asyncio.create_task(worker.run())
        await asyncio.to_thread(wait_until, lambda: site.asked() >= 10)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        assert worker.report.completed == 10

    others = threading.Thread(target=release_what_expires)
    others.start()
    try:
        site.run(stop_in_flight, lease_seconds=0.6, grace_seconds=30)
    finally:
        over.set()
        others.join()
    assert site.asked() == 10
    assert number(site.database, HELD) == number(site.database, HURT) == 0
    check_outcomes(site.database, site.work.stored.execution.id, ended=False)


def test_a_cancelled_worker_gives_back_what_does_not_end_in_the_grace_time(site: Site) -> None:
    site.market.fault("slow", "api", seconds=8)
    took: list[float] = []

    async def stop_in_flight(worker: Worker) -> None:
        working = asyncio.create_task(worker.run())
        await asyncio.to_thread(wait_until, lambda: site.asked() >= 10)
        began = asyncio.get_running_loop().time()
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        took.append(asyncio.get_running_loop().time() - began)

    site.run(stop_in_flight, grace_seconds=0.2)
    assert 0.2 <= took[0] < 5
    rows = task_rows(site.database, site.work.stored.execution.id)
    assert sorted(row.release_count for row in rows.values() if row.status == "PUBLISHED") == [0] * 70 + [1] * 10
    assert number(site.database, HELD) == 0


@pytest.mark.parametrize("failures", [0, 1, 2])
def test_what_failed_beside_the_fetching_is_stored_at_the_end(site: Site, failures: int) -> None:
    queue = ExecutionQueue(site.database, site.work.settings, site.work.stored, PRODUCT_TYPES)
    held = queue.claim(80)
    settings, report = site.work.settings, WorkReport()
    store = ResultStore(site.database, settings, Endpoints.from_settings(settings))

    async def scenario() -> None:
        room = ResultBuffer(store, report, None, asyncio.Event())
        for start in (0, 40):
            batch = held[start : start + 40]
            for lease in batch:
                lease.task.complete(utc_now())
            room.add([TaskResult(lease, body="[]") for lease in batch])
            room.store_if_due(idle=False)
        assert room.unstored == 80
        assert len(room.leases()) == 80
        await room.store_all()
        assert room.unstored == 0

    with breaking(site.database, COUNTING, after=0, times=failures) as stored:
        event_loop.run(scenario())
    assert report.completed == 80
    assert len(stored) == 2 + failures
    check_outcomes(site.database, site.work.stored.execution.id)
