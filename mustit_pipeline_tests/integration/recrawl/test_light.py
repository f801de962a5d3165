"""Light crawls: sellers are looked at before their interval ends, and never at the cost of one that is due."""

import pytest
from sqlalchemy import text

from mustit_pipeline.catalog.processing import process
from mustit_pipeline.crawling import steering
from mustit_pipeline.crawling.crawl import Crawl
from mustit_pipeline.crawling.planning import PRODUCT_TYPES
from mustit_pipeline.crawling.queue import ExecutionQueue, SharedQueue
from mustit_pipeline.crawling.recrawl import judge_pool
from mustit_pipeline.crawling.sql.executions import StoredExecution
from mustit_pipeline.crawling.steering import open_light, open_or_join
from mustit_pipeline.domain.states import ExecutionKind, ExecutionStatus
from mustit_pipeline.domain.values import ExecutionId, SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.scheduling.due import begin_slices
from mustit_pipeline.scheduling.light import open_light_slices
from mustit_pipeline.scheduling.sql.next_sellers import count_next_sellers
from mustit_pipeline.settings import Settings
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration.crawls import crawl, register
from mustit_pipeline_tests.integration.recrawl.conftest import PRODUCTS, SELLER, OpenShop, Shop


def swept(database: Database, hours: float, *sellers: str, products: int = 1000, changes: float = 100.0) -> None:
    """Sellers whose last sweep is so many hours ago, and what is known of their details."""
    register(database, *sellers)
    with database.transaction() as connection:
        for seller in sellers:
            connection.execute(
                text("""
                    INSERT INTO recrawl_sellers (seller_id, swept_at, products, detail_changes, detail_hours,
                                                 detail_rates, option_rates)
                    VALUES (:seller, now() - make_interval(secs => 3600 * :hours), :products, :changes, 1000,
                            ARRAY[0, CAST(:products AS int)], ARRAY[0, CAST(:products AS int)])
                """),
                {"seller": seller, "hours": hours, "products": products, "changes": changes},
            )
        connection.execute(text("UPDATE crawling_schedules SET next_due_at = now() + interval '20 hours'"))


def light(database: Database, settings: Settings, *, free: int = 4) -> list[str]:
    started = open_light_slices(database, settings, busy=["busy"], free=free, now=utc_now())
    return [entry.seller_id for entry in started]


def due(database: Database, seller: str) -> StoredExecution:
    return open_or_join(database, SellerId(seller), triggered_by="test", now=utc_now()).stored


def test_the_seller_where_most_is_expected_comes_first_and_one_slot_stays_free(
    database: Database, make_settings: MakeSettings
) -> None:
    swept(database, 2, "lively", changes=1000)
    swept(database, 2, "quiet", "busy", changes=1)
    swept(database, 0.5, "fresh", changes=1000)
    settings = make_settings(recrawl="adaptive")
    assert light(database, settings, free=1) == []
    assert light(database, settings, free=2) == ["lively"]
    assert light(database, settings) == ["quiet"]
    assert light(database, settings) == []


def test_a_seller_that_costs_more_than_is_to_spare_keeps_no_other_from_a_light_crawl(
    database: Database, make_settings: MakeSettings
) -> None:
    swept(database, 2, "huge", products=1_000_000, changes=1000)
    swept(database, 2, "small", products=10)
    assert light(database, make_settings(recrawl="adaptive", page_size=10, requests_per_hour=80), free=2) == ["small"]


def test_the_seller_with_a_source_that_grows_too_old_is_looked_at_whatever_the_price(
    database: Database, make_settings: MakeSettings
) -> None:
    swept(database, 2, "lively", "aged", changes=0)
    # Beside it, what the others' listings take is not few.
    swept(database, 0.5, "vast", products=3_000, changes=0)
    settings = make_settings(recrawl="adaptive", requests_per_hour=10, page_size=10)
    judge_pool(database, settings, utc_now())
    with database.transaction() as connection:
        connection.execute(text("UPDATE recrawl_pool SET price = 1e4"))
        connection.execute(
            text("UPDATE sellers SET total_product_count = 0, interval_unit = 'DAYS', interval_amount = 30")
        )
        # Most of the window is used: what is left is not to be thrown away.
        connection.execute(
            text("""
                INSERT INTO agent_bookings (booking_id, agent_id, booked_at, expires_at, answered_at)
                SELECT gen_random_uuid(), agent_id, now(), now(), now() FROM user_agents, generate_series(1, 6)
            """)
        )
    assert light(database, settings) == []

    def age(hours: int, *, looked_at: int) -> None:
        since = {"hours": hours, "look": looked_at}
        with database.transaction() as connection:
            connection.execute(
                text("""
                    UPDATE recrawl_sellers SET oldest_at = now() - make_interval(hours => :hours),
                           swept_at = now() - make_interval(hours => :look) WHERE seller_id = 'aged'
                """),
                since,
            )

    # It was looked at since its oldest source is late: that source may have failed, and is tried again a day later.
    age(48, looked_at=2)
    assert light(database, settings) == []
    age(48, looked_at=25)
    [again] = open_light_slices(database, settings, busy=(), free=4, now=utc_now())
    steering.cancel(database, ExecutionId(again.execution_id), utc_now())
    age(23, looked_at=2)
    assert light(database, settings) == ["aged"]


@pytest.mark.parametrize("stands_in_the_way", ["everything", "due crawl", "due soon", "no request left"])
def test_there_is_no_light_crawl_while_something_stands_in_the_way(
    database: Database, make_settings: MakeSettings, stands_in_the_way: str
) -> None:
    swept(database, 2, "lively", changes=1000)
    register(database, "other")
    settings = make_settings(recrawl="adaptive")
    if stands_in_the_way == "everything":
        settings = make_settings(recrawl="everything")
    elif stands_in_the_way == "due crawl":
        due(database, "other")
    elif stands_in_the_way == "due soon":
        with database.transaction() as connection:
            connection.execute(text("UPDATE crawling_schedules SET next_due_at = now() + interval '30 minutes'"))
    else:
        with database.transaction() as connection:
            connection.execute(text("UPDATE crawling_schedules SET next_due_at = now() WHERE seller_id = 'other'"))
            connection.execute(text("UPDATE sellers SET total_product_count = 1e8 WHERE seller_id = 'other'"))
    assert light(database, settings) == []


def test_a_light_crawl_finds_what_the_listing_shows_and_leaves_the_interval_alone(open_shop: OpenShop) -> None:
    shop = open_shop()
    due_at = shop.scalar("SELECT next_due_at FROM crawling_schedules")
    shop.change_listed(shop.items[0])
    stored = open_light(shop.database, SellerId(SELLER), utc_now())
    assert stored is not None
    assert (stored.kind, open_light(shop.database, SellerId(SELLER), utc_now())) == (ExecutionKind.LIGHT, None)
    # Joining it with `crawl` would make it one that is due.
    outcome = finish(shop, stored)
    assert (outcome.kind, outcome.status) == (ExecutionKind.LIGHT, ExecutionStatus.COMPLETED)
    assert shop.scalar("SELECT count(*) FROM product_change_sets WHERE version = 2") == 1
    assert shop.scalar("SELECT next_due_at FROM crawling_schedules") == due_at


def finish(shop: Shop, stored: StoredExecution) -> StoredExecution:
    work = Crawl(shop.database, shop.settings, stored)
    work.sweep(60)
    work.fetch_products(PRODUCT_TYPES, 60)
    process(shop.database, SellerId(SELLER), now=utc_now)
    return work.end()


def test_what_failed_is_tried_again_by_a_crawl_that_is_due_and_not_by_every_light_one(open_shop: OpenShop) -> None:
    shop = open_shop()
    broken = shop.items[0]
    [new] = shop.market.add_products(SELLER, 1)
    for item in (broken, new):
        shop.market.fault("status", "detail", status=404, itemNo=item)
    shop.age(30, broken)
    assert shop.crawl().stored.failed_tasks == 2

    stored = open_light(shop.database, SellerId(SELLER), utc_now())
    assert stored is not None
    assert finish(shop, stored).failed_tasks == 0
    assert shop.fetched(stored.id) == set()

    shop.market.clear_faults()
    assert shop.fetched_items(shop.crawl()) == {broken, new}
    assert shop.scalar("SELECT count(*) FROM recrawl_products WHERE detail_failed_at IS NOT NULL") == 0


def test_two_light_crawls_prove_that_a_product_is_gone(open_shop: OpenShop) -> None:
    shop = open_shop()
    shop.market.remove(SELLER, [shop.items[0]])
    for number in range(2):
        assert shop.scalar("SELECT count(*) FROM products WHERE deleted_at IS NOT NULL") == 0, number
        stored = open_light(shop.database, SellerId(SELLER), utc_now())
        assert stored is not None
        finish(shop, stored)
    assert shop.scalar("SELECT count(*) FROM products WHERE deleted_at IS NOT NULL") == 1


def test_a_light_crawl_is_bounded_by_the_requests_that_are_to_spare(open_shop: OpenShop) -> None:
    shop = open_shop()
    shop.age(30)
    register(shop.database, "other")
    window = 50 * shop.settings.requests_per_hour
    # The first ones at once, while the sweep goes on.
    for item in shop.items:
        shop.change_listed(item)
    # All but a few requests are needed by a seller that is due.
    shop.change("UPDATE sellers SET total_product_count = :n WHERE seller_id = 'other'", n=(window - 200) // 2)
    stored = open_light(shop.database, SellerId(SELLER), utc_now())
    assert stored is not None
    work = Crawl(shop.database, shop.settings, stored)
    work.sweep(60)
    few = work.reload().planned_tasks
    assert few < 2 * PRODUCTS
    steering.cancel(shop.database, stored.id, utc_now())
    assert len(shop.fetched(shop.crawl().stored.id)) == 2 * PRODUCTS


def test_a_light_crawl_that_is_joined_is_due_and_restarts_the_interval(open_shop: OpenShop) -> None:
    shop = open_shop()
    before = shop.scalar("SELECT next_due_at FROM crawling_schedules")
    stored = open_light(shop.database, SellerId(SELLER), utc_now())
    assert stored is not None
    joined = open_or_join(shop.database, SellerId(SELLER), triggered_by="api", now=utc_now())
    assert (joined.joined, joined.stored.id, joined.stored.kind) == (True, stored.id, ExecutionKind.DUE)
    assert shop.scalar("SELECT next_due_at FROM crawling_schedules") > before


def test_a_full_crawl_takes_the_place_of_a_light_one_which_has_passed_over_products(open_shop: OpenShop) -> None:
    shop = open_shop()
    light_one = open_light(shop.database, SellerId(SELLER), utc_now())
    assert light_one is not None
    Crawl(shop.database, shop.settings, light_one).sweep(60)
    opened = open_or_join(shop.database, SellerId(SELLER), triggered_by="cli", now=utc_now(), full_refetch=True)
    assert (opened.joined, opened.stored.kind) == (False, ExecutionKind.DUE)
    assert steering.find(shop.database, light_one.id).status is ExecutionStatus.CANCELLED
    finish(shop, opened.stored)
    assert len(shop.fetched(opened.stored.id)) == 2 * PRODUCTS


def test_a_light_crawl_that_an_operator_has_paused_stays_where_a_full_one_is_asked_for(open_shop: OpenShop) -> None:
    shop = open_shop()
    stored = open_light(shop.database, SellerId(SELLER), utc_now())
    assert stored is not None
    Crawl(shop.database, shop.settings, stored).sweep(60)
    steering.pause(shop.database, stored.id)
    opened = open_or_join(shop.database, SellerId(SELLER), triggered_by="cli", now=utc_now(), full_refetch=True)
    assert (opened.joined, opened.stored.id, opened.stored.status) == (True, stored.id, ExecutionStatus.PAUSED)


def test_a_light_crawl_gives_way_to_one_that_is_due_and_goes_on_afterwards(open_shop: OpenShop) -> None:
    shop = open_shop()
    shop.age(30)
    stored = open_light(shop.database, SellerId(SELLER), utc_now())
    assert stored is not None
    work = Crawl(shop.database, shop.settings, stored)
    work.sweep(60)
    queues = (
        ExecutionQueue(shop.database, shop.settings, stored, PRODUCT_TYPES),
        SharedQueue(shop.database, shop.settings),
    )
    register(shop.database, "other")
    other = due(shop.database, "other")
    assert [queue.claim(5) for queue in queues] == [[], []]
    assert queues[0].rest() is None
    report = work.fetch_products(PRODUCT_TYPES, 60)
    assert (report.requests, report.remaining) == (0, 2 * PRODUCTS)
    assert slices(shop.database) == ["other"]

    steering.cancel(shop.database, other.id, utc_now())
    assert slices(shop.database) == [SELLER]
    assert [len(queue.claim(2)) for queue in queues] == [2, 2]


def test_a_light_crawl_is_paused_resumed_and_worked_on_slice_by_slice_like_any_other(open_shop: OpenShop) -> None:
    shop = open_shop()
    shop.age(30)
    due_at = shop.scalar("SELECT next_due_at FROM crawling_schedules")
    stored = open_light(shop.database, SellerId(SELLER), utc_now())
    assert stored is not None
    work = Crawl(shop.database, shop.settings, stored)
    work.sweep(60)
    steering.pause(shop.database, stored.id)
    assert work.fetch_products(PRODUCT_TYPES, 60).requests == 0

    steering.resume(shop.database, stored.id)
    # A slice whose time is over, and one of another process.
    assert work.fetch_products(PRODUCT_TYPES, 0).remaining == 2 * PRODUCTS
    ended = finish(shop, steering.find(shop.database, stored.id))
    assert (ended.kind, ended.status) == (ExecutionKind.LIGHT, ExecutionStatus.COMPLETED)
    assert len(shop.fetched(stored.id)) == 2 * PRODUCTS
    assert shop.scalar("SELECT next_due_at FROM crawling_schedules") == due_at


def test_a_light_crawl_that_is_cancelled_leaves_no_work_and_the_interval_as_it_was(open_shop: OpenShop) -> None:
    shop = open_shop()
    shop.age(30)
    due_at = shop.scalar("SELECT next_due_at FROM crawling_schedules")
    stored = open_light(shop.database, SellerId(SELLER), utc_now())
    assert stored is not None
    work = Crawl(shop.database, shop.settings, stored)
    work.sweep(60)
    steering.cancel(shop.database, stored.id, utc_now())
    report = work.fetch_products(PRODUCT_TYPES, 60)
    assert (report.requests, report.remaining) == (0, 0)
    assert shop.scalar("SELECT next_due_at FROM crawling_schedules") == due_at
    assert open_light(shop.database, SellerId(SELLER), utc_now()) is not None


def slices(database: Database, free: int = 4) -> list[str]:
    with database.transaction() as connection:
        connection.execute(text("UPDATE crawling_schedules SET next_due_at = now() + interval '1 day'"))
    found = begin_slices(database, busy=(), free=free, now=utc_now(), slice_seconds=600)
    return [entry.seller_id for entry in found]


def test_light_crawls_wait_while_a_seller_is_due_and_leave_a_slot_free(database: Database) -> None:
    register(database, "a", "b", "c")
    for seller in ("a", "b"):
        open_light(database, SellerId(seller), utc_now())
    assert slices(database, free=2) == ["a"]
    assert slices(database, free=1) == []
    with database.transaction() as connection:
        connection.execute(text("UPDATE crawling_schedules SET next_due_at = now() WHERE seller_id = 'c'"))
    found = begin_slices(database, busy=(), free=4, now=utc_now(), slice_seconds=600)
    assert [entry.seller_id for entry in found] == ["c"]
    assert slices(database) == ["c"]
    # A seller that becomes due meanwhile does not wait for that one: what was a light crawl is due from then on.
    with database.transaction() as connection:
        connection.execute(text("UPDATE crawling_schedules SET next_due_at = now() WHERE seller_id = 'a'"))
        assert count_next_sellers(connection, busy=["c"]) == 1
    found = begin_slices(database, busy=["c"], free=4, now=utc_now(), slice_seconds=600)
    assert [entry.seller_id for entry in found] == ["a"]
    assert steering.find(database, ExecutionId(found[0].execution_id)).kind is ExecutionKind.DUE


def test_a_crawl_records_the_look_and_its_oldest_source(open_shop: OpenShop) -> None:
    shop = open_shop()
    oldest = shop.scalar("SELECT min(least(detail_fetched_at, option_fetched_at)) FROM recrawl_products")
    known = "SELECT oldest_at, products, (SELECT sum(n) FROM unnest(detail_rates) n), swept_at FROM recrawl_sellers"
    assert shop.row(known)[:3] == (oldest, PRODUCTS, PRODUCTS)
    before = shop.row(known)[3]
    crawl(shop.database, shop.settings, SELLER)
    assert shop.row(known)[3] > before
