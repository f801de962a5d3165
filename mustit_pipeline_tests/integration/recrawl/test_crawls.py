"""Crawls under the recrawl policy: what they fetch, and what they learn from it."""

import pytest

from mustit_pipeline.catalog import canonical
from mustit_pipeline.catalog.replay import replay_stored
from mustit_pipeline.crawling.crawl import Crawl
from mustit_pipeline.crawling.planning import CHANGED_PRODUCT_PRIORITY, NEW_PRODUCT_PRIORITY, PRODUCT_TYPES
from mustit_pipeline.crawling.results import ResultStore, TaskResult
from mustit_pipeline.crawling.sql import leases
from mustit_pipeline.crawling.sql.leases import LeasedTask
from mustit_pipeline.crawling.steering import open_or_join
from mustit_pipeline.domain.states import ExecutionStatus, LifeCycle, SweepStatus, TaskType
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.marketplace.endpoints import Endpoints
from mustit_pipeline.marketplace.parsing import parse_detail
from mustit_pipeline_tests.integration.crawling.checks import check_outcomes
from mustit_pipeline_tests.integration.crawling.child import crawling, wait_until
from mustit_pipeline_tests.integration.crawls import crawl, once_before
from mustit_pipeline_tests.integration.recrawl.conftest import PRODUCTS, SELLER, OpenShop, Shop
from mustit_pipeline_tests.unit.marketplace import bodies

PAGES = 3
BOTH = set(PRODUCT_TYPES)


def both(*items: int) -> set[tuple[int, TaskType]]:
    return {(item, kind) for item in items for kind in BOTH}


def open_crawl(shop: Shop) -> Crawl:
    opened = open_or_join(shop.database, SellerId(SELLER), triggered_by="test", now=utc_now())
    return Crawl(shop.database, shop.settings, opened.stored)


def test_a_crawl_of_a_seller_where_nothing_happened_fetches_its_listing_and_no_product(open_shop: OpenShop) -> None:
    shop = open_shop()
    again = shop.crawl().stored
    assert (again.execution.total_tasks, again.requests, again.sweep_status) == (PAGES, 1 + PAGES, SweepStatus.COMPLETE)


def test_what_the_listing_shows_is_found_by_the_next_crawl_and_the_hidden_once_it_is_too_old(
    open_shop: OpenShop,
) -> None:
    shop = open_shop()
    shown, hidden = shop.items[:2]
    shop.change_listed(shown)
    shop.market.change(SELLER, hidden, "DESCRIPTION")
    second = shop.crawl()
    assert shop.fetched(second.stored.id) == both(shown)
    assert second.report.versions == {LifeCycle.UPDATED: 1}

    shop.age(24, hidden)
    third = shop.crawl()
    assert shop.fetched(third.stored.id) == both(hidden)
    assert third.report.versions == {LifeCycle.UPDATED: 1}


def test_details_and_options_are_fetched_apart(open_shop: OpenShop) -> None:
    shop = open_shop()
    shop.change("UPDATE recrawl_products SET option_fetched_at = now() - interval '30 hours'")
    assert shop.fetched(shop.crawl().stored.id) == {(item, TaskType.PRODUCT_OPTION) for item in shop.items}


def test_new_products_and_those_that_came_back_are_fetched_whatever_the_price(open_shop: OpenShop) -> None:
    shop = open_shop(deletion_hold_share=1)
    gone = shop.items[3]
    shop.market.remove(SELLER, [gone])
    for _ in range(2):
        shop.crawl()
    assert shop.scalar("SELECT count(*) FROM products WHERE deleted_at IS NOT NULL") == 1
    shop.change("UPDATE recrawl_pool SET price = 1e4")
    shop.market.restore(SELLER, [gone])
    new = shop.market.add_products(SELLER, 2)
    outcome = shop.crawl()
    assert shop.fetched(outcome.stored.id) == both(gone, *new)
    assert outcome.report.versions == {LifeCycle.CREATED: 2, LifeCycle.RESTORED: 1}


def test_what_is_new_or_signalled_is_planned_while_the_sweep_goes_on(open_shop: OpenShop) -> None:
    shop = open_shop(max_concurrent_requests=1)
    shop.age(30, *shop.items[1:])
    shop.change_listed(shop.items[0])
    new = shop.market.add_products(SELLER, 1)
    planned: list[list[tuple[int, int]]] = []
    query = """SELECT array_agg(DISTINCT (item_no, priority)) FROM crawler_tasks t
               JOIN crawling_schedule_executions e USING (execution_id)
               WHERE e.sweep_status = 'PENDING' AND item_no IS NOT NULL"""
    work = open_crawl(shop)
    work.sweep(60, lambda _: planned.append(shop.scalar(query)))
    assert planned[-1] is not None
    known = f"SELECT array_agg(DISTINCT priority) FROM crawler_tasks WHERE execution_id = '{work.stored.id}'"
    assert shop.fetched(work.stored.id) == both(*shop.items, *new)
    assert {NEW_PRODUCT_PRIORITY, CHANGED_PRODUCT_PRIORITY} < set(shop.scalar(known))
    work.fetch_products(PRODUCT_TYPES, 60)
    check_outcomes(shop.database, work.stored.id)


def test_a_source_that_hardly_changed_is_left_alone_however_many_requests_are_to_spare(open_shop: OpenShop) -> None:
    shop = open_shop()
    quiet, lively = shop.items[:2]
    shop.change("UPDATE recrawl_products SET detail_hours = 1e4, option_hours = 1e4")
    shop.change("UPDATE recrawl_products SET detail_changes = 1e3 WHERE item_no = :item", item=lively)
    shop.change("UPDATE recrawl_pool SET price = 1e-6")
    shop.age(6, quiet, lively)
    assert shop.fetched(shop.crawl().stored.id) == {(lively, TaskType.PRODUCT_DETAIL)}


def test_what_is_not_worth_the_price_of_the_pool_waits_for_its_age(open_shop: OpenShop) -> None:
    shop = open_shop()
    lively = shop.items[0]
    shop.change("UPDATE recrawl_products SET detail_changes = 10, detail_hours = 100 WHERE item_no = :i", i=lively)
    shop.change("UPDATE recrawl_pool SET price = 1e4")
    shop.age(6, lively)
    assert shop.fetched(shop.crawl().stored.id) == set()
    shop.age(18, lively)
    assert shop.fetched(shop.crawl().stored.id) == both(lively)


def test_where_the_promise_cannot_be_kept_half_goes_to_the_oldest_and_half_by_value(open_shop: OpenShop) -> None:
    shop = open_shop()
    old, lively = shop.items[:6], shop.items[6:]
    shop.age(1000, *old)
    shop.age(500, *lively)
    shop.change("UPDATE recrawl_products SET detail_hours = 1e6, option_hours = 1e6")
    shop.change(
        "UPDATE recrawl_products SET detail_changes = 50, detail_hours = 500 WHERE item_no = ANY(:items)",
        items=list(lively),
    )
    # Two hours of the whole pool are four requests.
    shop.change(
        "UPDATE recrawl_pool SET promise_broken = true, kept_age = 1000, requests_per_hour = 2, price = 1e-6, "
        "sources = 1e9"
    )
    fetched = shop.fetched(shop.crawl().stored.id)
    assert len(fetched) == 4
    assert len([item for item, _ in fetched if item in old]) == 2
    assert len([item for item, kind in fetched if item in lively and kind is TaskType.PRODUCT_DETAIL]) == 2


@pytest.mark.parametrize(
    ("settings", "options"),
    [({"recrawl": "everything"}, {}), ({}, {"full_refetch": True}), ({}, {"product_limit": 99})],
)
def test_everything_is_fetched_where_that_was_asked_for(
    open_shop: OpenShop, settings: dict[str, object], options: dict[str, object]
) -> None:
    shop = open_shop(**settings)
    opened = open_or_join(shop.database, SellerId(SELLER), triggered_by="test", now=utc_now(), **options)  # pyright: ignore[reportArgumentType]
    outcome = crawl(shop.database, shop.settings, SELLER)
    assert outcome.stored.id == opened.stored.id
    assert shop.fetched(outcome.stored.id) == both(*shop.items)


def test_a_failed_fetch_teaches_nothing_and_the_next_crawl_tries_again(open_shop: OpenShop) -> None:
    shop = open_shop()
    changed = shop.items[0]
    before = shop.scalar("SELECT detail_fetched_at FROM recrawl_products WHERE item_no = :item", item=changed)
    shop.change_listed(changed)
    shop.market.fault("status", "detail", status=500, itemNo=changed)
    failed = shop.crawl()
    assert failed.stored.failed_tasks == 1
    known = "SELECT detail_fetched_at, detail_signals, detail_hours FROM recrawl_products WHERE item_no = :item"
    assert shop.row(known, item=changed) == (before, 1, 0)
    shop.market.clear_faults()
    again = shop.crawl()
    assert shop.fetched(again.stored.id) == {(changed, TaskType.PRODUCT_DETAIL)}
    fetched_at, signals, hours = shop.row(known, item=changed)
    assert (fetched_at > before, signals, hours > 0) == (True, 0, True)


def test_each_fetch_teaches_whether_its_source_had_changed(open_shop: OpenShop) -> None:
    shop = open_shop()
    changed, same = shop.items[:2]
    shop.change_listed(changed)
    shop.age(30, changed, same)
    shop.crawl()
    known = """SELECT detail_changes > 0.9, option_changes > 0, CAST(round(detail_hours) AS int) FROM recrawl_products
               WHERE item_no = :item"""
    assert shop.row(known, item=changed) == (True, False, 30)
    assert shop.row(known, item=same) == (False, False, 30)
    assert shop.scalar("SELECT changed_at FROM recrawl_products WHERE item_no = :i", i=changed) is not None
    assert shop.scalar("SELECT round(detail_hours) FROM recrawl_sellers") == 60


def test_bodies_that_are_read_anew_teach_nothing(open_shop: OpenShop) -> None:
    shop = open_shop()
    shop.age(30)
    shop.crawl()
    query = (
        "SELECT array_agg(p ORDER BY item_no)::text || (SELECT s::text FROM recrawl_sellers s) FROM recrawl_products p"
    )
    before = shop.scalar(query)
    shop.change("UPDATE products SET detail_data_hash = 'another', data_hash = 'another'")
    replay_stored(shop.database, SellerId(SELLER), now=utc_now)
    assert shop.scalar("SELECT count(*) FROM products WHERE detail_data_hash <> 'another'") == PRODUCTS
    assert shop.scalar(query) == before


def test_a_detail_that_lacks_a_module_is_remembered_as_fetched_with_its_result_and_teaches_nothing(
    open_shop: OpenShop,
) -> None:
    shop = open_shop()
    item = shop.items[0]
    shop.age(30)
    work = open_crawl(shop)
    work.plan_known_products(PRODUCT_TYPES)
    [leased] = [one for one in lease_all(work) if one.item_no == item and one.task_type is TaskType.PRODUCT_DETAIL]
    info = bodies.info(itemNo=item, sellerId=SELLER)
    body = bodies.encoded(bodies.detail(ProductInfoModule=info, ShippingModule=None))
    content = canonical.content_of(parse_detail(body, item_no=item), leased.known_hash)
    leased.task.complete(utc_now())
    store = ResultStore(shop.database, shop.settings, Endpoints.from_settings(shop.settings))
    result = TaskResult(leased, body=body.decode(), content=content)
    with pytest.raises(PowerFailure), once_before(shop.database, "INSERT INTO recrawl_products", fail_power):
        store.store([result])
    assert work.reload().execution.completed_tasks == 0
    assert store.store([result]).completed == 1
    query = """SELECT detail_changes, detail_hours, detail_fetched_at > now() - interval '1 hour' FROM recrawl_products
               WHERE item_no = :item"""
    assert shop.row(query, item=item) == (0, 0, True)


def lease_all(work: Crawl) -> list[LeasedTask]:
    with work.database.transaction() as connection:
        return leases.claim(
            connection, work.stored.home, PRODUCT_TYPES, owner="me", limit=99, lease_seconds=60, max_retries=2
        )


def test_a_plan_is_made_once_however_often_its_sweep_is_closed(open_shop: OpenShop) -> None:
    shop = open_shop()
    shop.age(30)
    work = open_crawl(shop)
    work.sweep(60)
    planned = work.reload().planned_tasks
    assert planned == PAGES + 2 * PRODUCTS
    shop.age(30)
    work.sweep(60)
    assert work.reload().planned_tasks == planned


def test_a_sweep_is_closed_and_its_rest_is_planned_together_or_not_at_all(open_shop: OpenShop) -> None:
    shop = open_shop()
    shop.age(30)
    work = open_crawl(shop)
    with pytest.raises(PowerFailure), once_before(shop.database, "INSERT INTO recrawl_sellers", fail_power):
        work.sweep(60)
    stored = work.reload()
    assert (stored.sweep_status, stored.planned_tasks) == (SweepStatus.PENDING, PAGES)
    work.sweep(60)
    assert work.reload().planned_tasks == PAGES + 2 * PRODUCTS


def test_a_crawl_that_is_killed_goes_on_with_its_plan_and_learns_from_each_fetch_once(open_shop: OpenShop) -> None:
    shop = open_shop(60, page_size=20, lease_seconds=1, max_concurrent_requests=5, total_timeout_seconds=5)
    shop.market.settings(latencyMs=20)
    shown, old = shop.items[:3], shop.items[3:30]
    shop.age(30, *old)
    for item in shown:
        shop.change_listed(item)
    ended = "SELECT completed_tasks FROM crawling_schedule_executions ORDER BY created_at DESC LIMIT 1"
    opened = "SELECT count(*) FROM crawling_schedule_executions"
    for moment in (1, 20):
        with crawling(shop.settings, SELLER) as process:
            wait_until(lambda least=moment: shop.scalar(opened) == 2 and shop.scalar(ended) >= least)
            process.kill()
            process.wait()
    again = shop.crawl().stored
    assert (shop.scalar(opened), again.execution.status) == (2, ExecutionStatus.COMPLETED)
    assert shop.fetched(again.id) == both(*shown, *old)
    check_outcomes(shop.database, again.id)
    learnt = """SELECT min(round(detail_hours)), max(round(detail_hours)), min(round(option_hours)), count(*)
                FROM recrawl_products WHERE item_no = ANY(CAST(:items AS bigint[]))"""
    assert shop.row(learnt, items=list(old)) == (30, 30, 30, len(old))


class PowerFailure(Exception):
    """The process ends in the middle of a transaction."""


def fail_power() -> None:
    raise PowerFailure
