"""How the system that this one replaces mixed up data, lost it or sent it for ever; docs/faults.md has the proofs."""

from collections import Counter
from typing import Any

import orjson
import pytest
from sqlalchemy import text

from mustit_pipeline.catalog.processing import BatchSize
from mustit_pipeline.catalog.replay import replay_failed
from mustit_pipeline.crawling.sql import tasks
from mustit_pipeline.crawling.sql.tasks import PlannedTask
from mustit_pipeline.delivery.relay import relay
from mustit_pipeline.domain.states import LifeCycle, TaskType
from mustit_pipeline.domain.values import RequestUrl, SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.simulator.control import MarketplaceControl, ProductServerControl
from mustit_pipeline.simulator.process import RunningSimulator
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration.catalog.shelf import Shelf, assert_whole
from mustit_pipeline_tests.integration.crawling.checks import check_outcomes
from mustit_pipeline_tests.integration.crawls import crawl, register
from mustit_pipeline_tests.unit.marketplace import bodies


@pytest.fixture
def shelf(database: Database) -> Shelf:
    return Shelf(database)


def test_defect_04_a_detail_is_never_processed_before_its_listing(shelf: Shelf) -> None:
    """Both speak of the price; the detail has the last word, even if it arrived before a page that still waits."""
    shelf.crawl(1, 2)
    shelf.open()
    shelf.detail(1, discountPrice=300)
    shelf.listing(2)
    shelf.listing(1, price="400")
    shelf.swept()
    shelf.process(BatchSize(pages=1, bodies=1))

    [newest] = shelf.rows("SELECT product_data FROM product_change_sets WHERE version = 2")
    assert orjson.loads(newest["product_data"])["discountPrice"] == 300
    assert shelf.versions(1) == [(1, "CREATED"), (2, "UPDATED")]


def test_defect_05_a_failed_event_is_not_retried_without_end_and_holds_up_no_other(
    shelf: Shelf, make_settings: MakeSettings, product_server: RunningSimulator, receiver: ProductServerControl
) -> None:
    settings = make_settings(product_server_url=product_server.url, outbox_max_retries=3)
    shelf.crawl(1, 2, 3)
    receiver.fault("status", "events", itemNo=2, status=500)

    reports = [relay(shelf.database, settings, patience_seconds=0.3) for _ in range(3)]
    shelf.change("UPDATE product_outbox SET next_attempt_at = now() - interval '1 day'")
    reports.append(relay(shelf.database, settings))

    assert [(report.sent, report.failed, report.waiting) for report in reports] == [(2, 1, 0)] + [(0, 0, 0)] * 3
    assert receiver.audit()["requests"]["events"] == 2 + 3
    assert [shelf.outbox(item)[0]["status"] for item in (1, 2, 3)] == ["COMPLETED", "FAILED", "COMPLETED"]


def test_defect_07_a_failed_body_is_tried_again_by_itself_and_then_by_hand(shelf: Shelf) -> None:
    shelf.put(TaskType.PRODUCT_DETAIL, 1, b'{"moduleList": "not what it was"}')
    shelf.listing(1)
    shelf.options(1)
    shelf.swept()
    tries = [shelf.process().failed_bodies for _ in range(6)]
    assert sum(tries) == sum(tries[:-1]) > 1
    assert shelf.versions(1) == []
    assert [
        row["status"] for row in shelf.rows("SELECT status FROM product_raw_data WHERE item_no = 1 ORDER BY 1")
    ] == [
        "FAILED",
        "PROCESSED",
    ]

    # The mended reader of a new release, seen from the body's side.
    readable = bodies.encoded(bodies.detail(ProductInfoModule=bodies.info(itemNo=1))).decode()
    shelf.change("UPDATE product_raw_data SET body = :body WHERE status = 'FAILED'", body=readable)
    assert shelf.process().bodies == 0
    replay_failed(shelf.database, seller_id=None, since=None, now=utc_now)

    assert shelf.versions(1) == [(1, "CREATED")]
    assert_whole(shelf.database)


def test_defect_07_a_body_that_was_refused_when_it_came_is_kept_and_replayed_without_a_request(
    database: Database, make_settings: MakeSettings, marketplace: RunningSimulator, market: MarketplaceControl
) -> None:
    settings = make_settings(base_url=marketplace.url)
    market.add_seller("s", 3)
    register(database, "s")
    item, other, *_ = (product["itemNo"] for product in market.products("s"))
    crawl(database, settings, "s")
    market.set_fields("s", other, stock=77)
    market.fault("wrong_shape", "detail", itemNo=item)

    refused = crawl(database, settings, "s")

    rows = check_outcomes(database, refused.stored.execution.id)
    failed = rows.pop(f"PRODUCT_DETAIL:{item}")
    assert (failed.status, failed.retry_count, failed.bodies) == ("FAILED", settings.task_max_retries, 1)
    assert {row.status for row in rows.values()} == {"COMPLETED"}
    assert (refused.report.versions, refused.report.changes) == ({LifeCycle.UPDATED: 1}, {"STOCK": 1})
    with database.transaction() as connection:
        kept = "SELECT item_no, body, error_code, error_text FROM product_raw_data WHERE status = 'FAILED'"
        [row] = connection.execute(text(kept))
        assert (row.item_no, row.error_code, row.error_text) == (item, failed.error_code, failed.error_text)
        assert orjson.loads(row.body) == {"result": "OK", "data": {"list": "none"}}
        # The mended reader of a new release, seen from the body's side.
        connection.execute(
            text("""
                UPDATE product_raw_data SET body = regexp_replace(
                    (SELECT body FROM product_raw_data
                     WHERE item_no = :item AND source = 'PRODUCT_DETAIL' AND status = 'PROCESSED'),
                    :stock, :other)
                WHERE status = 'FAILED'
            """),
            {"item": item, "stock": r'"stock":\d+', "other": '"stock":78'},
        )
    market.reset_audit()

    done = replay_failed(database, seller_id=SellerId("s"), since=None, now=utc_now)

    report = done.reports["s"]
    assert (done.reopened, report.versions, report.changes) == (1, {LifeCycle.UPDATED: 1}, {"STOCK": 1})
    assert market.requested_urls() == {}
    assert_whole(database)


def test_defect_08_limits_are_settings(
    database: Database,
    make_settings: MakeSettings,
    marketplace: RunningSimulator,
    market: MarketplaceControl,
    product_server: RunningSimulator,
    receiver: ProductServerControl,
) -> None:
    """Every number here is another one than the built-in one, and all of them are obeyed."""
    settings = make_settings(
        base_url=marketplace.url,
        product_server_url=product_server.url,
        page_size=3,
        task_max_retries=1,
        network_tries=2,
        max_concurrent_requests=1,
        outbox_max_retries=1,
    )
    market.add_seller("s", 7)
    register(database, "s")
    broken, reset = (product["itemNo"] for product in market.products("s")[:2])
    market.fault("5xx", "detail", itemNo=broken)
    market.fault("reset", "options", itemNo=reset)
    market.settings(latencyMs=30)

    stored = crawl(database, settings, "s").stored
    rows = check_outcomes(database, stored.execution.id)
    assert Counter(key.split(":")[0] for key in rows) == {"MINISHOP": 3, "PRODUCT_DETAIL": 7, "PRODUCT_OPTION": 7}
    asked = market.requested_urls()
    assert sum(times for url, times in asked.items() if f"/{broken}/detail" in url) == 1 + settings.task_max_retries
    assert sum(times for url, times in asked.items() if f"/{reset}/options" in url) == 2 * settings.network_tries
    assert market.audit()["maxInFlight"] == settings.max_concurrent_requests

    receiver.fault("status", "events", status=500)
    report = relay(database, settings, patience_seconds=1)
    assert (report.sent, report.failed) == (0, 5)
    assert receiver.audit()["requests"]["events"] == 5


def test_defect_10_a_product_without_options_is_complete_and_sent(
    shelf: Shelf, make_settings: MakeSettings, product_server: RunningSimulator, receiver: ProductServerControl
) -> None:
    shelf.listing(1)
    shelf.detail(1)
    shelf.put(TaskType.PRODUCT_OPTION, 1, b"[]")
    shelf.swept()
    shelf.process()

    report = relay(shelf.database, make_settings(product_server_url=product_server.url))

    assert (report.sent, report.failed, report.waiting) == (1, 0, 0)
    assert receiver.products(shelf.seller_id)[1]["options"] == []


def test_defect_12_the_same_call_in_another_order_is_the_same_task(shelf: Shelf) -> None:
    path = "http://127.0.0.1/searchmini-shop-search"
    urls = [f"{path}?sellerId=dmont&pageNo=0", f"{path}?pageNo=0&sellerId=dmont"]
    added: list[int] = []
    for url in urls:
        planned = PlannedTask(RequestUrl(url, TaskType.MINISHOP), priority=0, page_no=0)
        with shelf.database.transaction() as connection:
            added.append(tasks.add(connection, shelf.stored.home, [planned, planned]))
    assert added == [1, 0]
    assert shelf.rows("SELECT total_tasks FROM crawling_schedule_executions") == [{"total_tasks": 1}]


def test_defect_12_the_same_content_in_another_order_is_no_change(shelf: Shelf) -> None:
    entry = bodies.listing_item(itemNo=1, tagList=[{"title": "b"}, {"title": "a"}])
    info = bodies.info(itemNo=1)
    options = [bodies.option(itemNo=1, optionNo=number) for number in (1, 2)]

    def arrive(*, backwards: bool) -> None:
        def turned(body: dict[str, Any]) -> dict[str, Any]:
            return dict(reversed(body.items())) if backwards else body

        listed = turned(entry | {"tagList": list(reversed(entry["tagList"])) if backwards else entry["tagList"]})
        answered = [turned(option) for option in options]
        shelf.listing(1)
        shelf.change("DELETE FROM product_raw_data WHERE status = 'PENDING'")
        shelf.put(TaskType.MINISHOP, None, bodies.encoded(turned(bodies.listing(listed, count=1))))
        shelf.put(TaskType.PRODUCT_DETAIL, 1, bodies.encoded(turned(bodies.detail(ProductInfoModule=turned(info)))))
        shelf.put(TaskType.PRODUCT_OPTION, 1, bodies.encoded(answered[::-1] if backwards else answered))
        shelf.swept()
        shelf.process()
        shelf.end()

    arrive(backwards=False)
    shelf.open()
    arrive(backwards=True)

    assert shelf.rows("SELECT count(*) AS n FROM product_raw_data WHERE status = 'PROCESSED'") == [{"n": 6}]
    assert shelf.versions(1) == [(1, "CREATED")]
