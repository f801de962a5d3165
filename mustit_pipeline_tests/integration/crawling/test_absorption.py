"""Bodies that are absorbed while others are fetched: beside the fetching, and published only afterwards."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event
from structlog.testing import capture_logs

from mustit_pipeline.catalog.processing import process
from mustit_pipeline.crawling import crawl
from mustit_pipeline.crawling.planning import PRODUCT_TYPES
from mustit_pipeline.crawling.result_buffer import WorkReport
from mustit_pipeline.domain.states import LifeCycle
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline_tests.integration.crawling.checks import check_outcomes, number
from mustit_pipeline_tests.integration.crawling.child import wait_until
from mustit_pipeline_tests.integration.crawling.sites import HELD, HURT, Site

FETCHED = "SELECT count(*) FROM product_raw_data WHERE item_no IS NOT NULL"
ABSORBED = f"{FETCHED} AND status = 'PROCESSED'"
VERSIONS = "SELECT count(*) FROM product_change_sets"


@pytest.fixture(autouse=True)
def _small_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crawl, "ABSORBED_AT_ONCE", 10)


@contextmanager
def before_marking(database: Database, act: Callable[[Any], None]) -> Generator[None]:
    """Do something each time before bodies are marked as processed."""

    def notice(_: object, cursor: Any, statement: str, *__: object) -> None:
        if "SET status" in statement and "WHERE raw_id = ANY(CAST" in statement:
            act(cursor)

    event.listen(database.engine, "before_cursor_execute", notice)
    try:
        yield
    finally:
        event.remove(database.engine, "before_cursor_execute", notice)


def publish(site: Site) -> None:
    """What is left is processed, and every product has its first version."""
    report = process(site.database, SellerId("s"), now=utc_now)
    assert report.versions == {LifeCycle.CREATED: 40}
    assert report.held is None
    assert number(site.database, VERSIONS) == 40
    assert number(site.database, "SELECT count(*) FROM product_raw_data WHERE attempts <> 1") == 0


def test_bodies_are_absorbed_before_the_fetching_has_ended_and_published_after_it(site: Site) -> None:
    absorbed: list[int] = []

    def wait_for_the_first_pass(report: WorkReport) -> None:
        # Nothing more is fetched meanwhile: the display has the loop. The pass was begun some batches ago.
        if report.completed >= 30 and not absorbed:
            wait_until(lambda: number(site.database, ABSORBED) > 0)
            absorbed.append(site.asked())

    report = site.work.fetch_products(PRODUCT_TYPES, 60, wait_for_the_first_pass)

    assert 0 < absorbed[0] < report.completed == 80
    assert number(site.database, VERSIONS) == 0
    publish(site)
    check_outcomes(site.database, site.work.stored.execution.id)


def test_fewer_results_than_a_pass_is_worth_wait_for_the_end(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crawl, "ABSORBED_AT_ONCE", 81)

    site.work.fetch_products(PRODUCT_TYPES, 60)

    assert (number(site.database, FETCHED), number(site.database, ABSORBED)) == (80, 0)
    publish(site)


def test_a_pass_that_fails_costs_the_crawl_nothing_and_is_not_tried_again(site: Site) -> None:
    """Its connection is gone in the middle, as if the process had been killed: what it had read waits as before."""
    marked: list[Any] = []

    def lose_the_connection(cursor: Any) -> None:
        marked.append(cursor)
        cursor.connection.close()

    with capture_logs() as said, before_marking(site.database, lose_the_connection):
        report = site.work.fetch_products(PRODUCT_TYPES, 60)

    assert (report.completed, report.failed, report.requests, report.remaining) == (80, 0, 80, 0)
    assert [line["event"] for line in said].count("bodies are absorbed after the fetching") == 1
    assert len(marked) == 1
    assert (number(site.database, FETCHED), number(site.database, ABSORBED)) == (80, 0)
    assert number(site.database, HELD) == number(site.database, HURT) == 0
    publish(site)


def test_a_crawl_ends_only_when_the_pass_under_way_has(site: Site) -> None:
    """The next processor would wait for it, and a process that ends would break it off."""
    ended: list[bool] = []

    def wait_for_the_last_result(_: object) -> None:
        wait_until(lambda: number(site.database, FETCHED) == 80)
        ended.append(True)

    with before_marking(site.database, wait_for_the_last_result):
        site.work.fetch_products(PRODUCT_TYPES, 60)

    assert ended
    # The pass goes on for as long as bodies wait.
    assert number(site.database, ABSORBED) == 80
    publish(site)
