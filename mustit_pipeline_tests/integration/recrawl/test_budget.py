"""What the pool's requests buy: capacity, the age that is kept, and what would keep the promise."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from sqlalchemy import text

from mustit_pipeline.crawling.budget import Budget, SellerOrder, WhatIf, view
from mustit_pipeline.crawling.forecast import look
from mustit_pipeline.crawling.recrawl import JUDGED_FOR, judge_pool
from mustit_pipeline.crawling.sql import executions, recrawl_terms
from mustit_pipeline.crawling.steering import open_or_join
from mustit_pipeline.defs.monitoring.checks import outcome
from mustit_pipeline.domain.values import CrawlingInterval, SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.monitoring import alerting
from mustit_pipeline.monitoring.criteria import CRITERIA, Judgement
from mustit_pipeline.monitoring.spot_checks import deadline
from mustit_pipeline.monitoring.sql.spot_checks import Drawn, Suspect
from mustit_pipeline.settings import Settings
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration.crawls import register
from mustit_pipeline_tests.integration.recrawl.conftest import SELLER, OpenShop

# 21:00 in Seoul.
NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
POOL = {"recrawl": "adaptive", "requests_per_hour": 80}


def stock(database: Database, products: int, *, oldest_hours: float = 1.0, seller: str = SELLER, step: int = 7) -> None:
    """A seller of so many products, whose oldest source is so old and which change as often as a step says."""
    register(database, seller)
    with database.transaction() as connection:
        connection.execute(
            text("""
                INSERT INTO recrawl_sellers (seller_id, swept_at, products, detail_rates, option_rates, oldest_at)
                VALUES (:seller, :swept_at, :products,
                        array_fill(0, ARRAY[:step - 1]) || CAST(:products AS int),
                        array_fill(0, ARRAY[:step - 1]) || CAST(:products AS int), :oldest_at)
            """),
            {
                "seller": seller,
                "step": step,
                "products": products,
                "swept_at": NOW - timedelta(hours=1),
                "oldest_at": NOW - timedelta(hours=oldest_hours),
            },
        )


def budget(database: Database, settings: Settings, what_if: WhatIf | None = None, only: str | None = None) -> Budget:
    with database.reading() as connection:
        return view(
            connection, settings, NOW, what_if=what_if or WhatIf(), order=SellerOrder.FRESHNESS, most=20, only=only
        )


def judge(database: Database, settings: Settings) -> Judgement:
    [rule] = [one for one in CRITERIA if one.name == "products_fresh"]
    with database.reading() as connection:
        return rule.judge(connection, settings, NOW)


def test_fifty_agents_keep_twenty_thousand_products_within_a_day(
    database: Database, make_settings: MakeSettings
) -> None:
    stock(database, 20_000)
    found = budget(database, make_settings(**POOL))
    assert (found.agents, found.capacity_per_day, found.used_today, found.left_today) == (50, 96_000, 0, 12_000)
    assert (found.products, found.promise_per_day, found.kept_age) == (20_000, 40_000, 24)
    assert (found.promise_kept, found.remedies.agents, found.oldest_age) == (True, 22, 1)
    assert 0.9 < found.expected_freshness <= 1
    assert found.promise_per_day <= found.cost_per_day <= found.capacity_per_day
    assert judge(database, make_settings(**POOL)).passed


def test_where_the_promise_cannot_be_kept_it_says_what_is_kept_and_what_would_keep_it(
    database: Database, make_settings: MakeSettings
) -> None:
    stock(database, 200_000)
    settings = make_settings(**POOL)
    found = budget(database, settings)
    assert (found.promise_kept, found.affords_promise, found.remedies.agents) == (False, False, 220)
    assert found.kept_age > 24
    assert budget(database, settings, WhatIf(agents=found.remedies.agents)).affords_promise
    assert not budget(database, settings, WhatIf(agents=found.remedies.agents - 1)).affords_promise
    kept = budget(database, settings, WhatIf(max_age=found.kept_age))
    assert (kept.affords_promise, kept.kept_age) == (True, found.kept_age)
    judged = judge(database, settings)
    assert not judged.passed
    assert "220 agents would keep that" in judged.summary


@pytest.mark.parametrize(("hours", "passed"), [(24.0, True), (24.1, False)])
def test_a_source_that_is_older_than_promised_breaks_the_promise(
    database: Database, make_settings: MakeSettings, hours: float, passed: bool
) -> None:
    stock(database, 100, oldest_hours=hours)
    judged = judge(database, make_settings(**POOL))
    assert (judged.passed, judged.metadata["sellers"]) == (passed, f"{SELLER} ({hours:.1f} h)")
    assert judge(database, make_settings(recrawl="everything")).passed


def test_a_seller_that_was_never_swept_counts_with_its_listing(database: Database, make_settings: MakeSettings) -> None:
    register(database, SELLER)
    with database.transaction() as connection:
        connection.execute(text("UPDATE sellers SET total_product_count = 300"))
    found = budget(database, make_settings(**POOL))
    assert (found.products, found.promise_per_day, found.oldest_age) == (300, 600, None)


def test_requests_per_change_are_those_of_the_last_days(open_shop: OpenShop) -> None:
    shop = open_shop()
    with shop.database.reading() as connection:
        assert view(connection, shop.settings, datetime.now(UTC)).requests_per_change is None
    shop.change_listed(shop.items[0])
    shop.crawl()
    spent = shop.scalar("SELECT sum(requests) FROM crawling_schedule_executions")
    with shop.database.reading() as connection:
        assert view(connection, shop.settings, datetime.now(UTC)).requests_per_change == spent


def test_the_price_of_the_pool_rises_where_more_is_planned_than_it_can_send_and_falls_where_less(
    database: Database, make_settings: MakeSettings
) -> None:
    stock(database, 200_000)
    settings = make_settings(**POOL)
    prices: list[float] = []
    for number, planned in enumerate((0, 0, 100_000)):
        judge_pool(database, settings, NOW + number * JUDGED_FOR)
        # Not judged again so soon.
        judge_pool(database, settings, NOW + number * JUDGED_FOR + timedelta(minutes=1))
        with database.transaction() as connection:
            known = recrawl_terms.read_pool(connection)
            assert known is not None
            prices.append(known.price)
            recrawl_terms.count_planned(connection, planned)
    judge_pool(database, settings, NOW + 3 * JUDGED_FOR)
    with database.reading() as connection:
        known = recrawl_terms.read_pool(connection)
    assert known is not None
    assert prices[0] > prices[1] > prices[2]
    assert known.price > prices[2]


def test_an_operators_boost_decides_what_is_worth_the_price(open_shop: OpenShop) -> None:
    shop = open_shop(min_change_chance=0)
    favourite, usual = shop.items[:2]
    shop.age(12, favourite, usual)
    shop.change("UPDATE recrawl_pool SET price = 1")
    assert shop.fetched_items(shop.crawl()) == set()
    with shop.database.transaction() as connection:
        recrawl_terms.boost_product(connection, SELLER, favourite, 100)
    assert shop.fetched_items(shop.crawl()) == {favourite}
    with shop.database.transaction() as connection:
        recrawl_terms.boost_seller(connection, SELLER, 100)
    assert usual in shop.fetched_items(shop.crawl())


@pytest.mark.parametrize(
    ("recrawl", "interval_hours", "gone", "hours"),
    [
        # Two intervals and a delivery, or an interval and the maximum age; three sweeps for what is gone.
        ("everything", 6, False, 2 * 6 + 24),
        ("adaptive", 6, False, 6 + 48 + 24),
        ("adaptive", 72, False, 2 * 72 + 24),
        ("adaptive", 6, True, 3 * 6 + 24),
    ],
)
def test_a_sampled_difference_is_a_fault_once_its_age_should_have_made_a_crawl_fetch_it(
    make_settings: MakeSettings, recrawl: str, interval_hours: int, gone: bool, hours: int
) -> None:
    settings = make_settings(recrawl=recrawl, max_age_hours=48, delivery_hours=24)
    suspect = Suspect(uuid4(), Drawn(SELLER, 1), "hash", NOW, refetched=False, interval=timedelta(hours=interval_hours))
    assert deadline(settings, suspect, gone=gone) == NOW + timedelta(hours=hours)


def test_the_least_fresh_sellers_come_first_and_all_are_counted(
    database: Database, make_settings: MakeSettings
) -> None:
    for step in range(5, 15):
        stock(database, 100, seller=f"seller {step}", step=step, oldest_hours=20 - step)
    found = budget(database, make_settings(**POOL))
    assert [one.seller_id for one in found.sellers] == [f"seller {step}" for step in reversed(range(5, 15))]
    shares = [one.expected_freshness for one in found.sellers]
    assert shares == sorted(shares)
    assert sum(shares) / 10 == pytest.approx(found.expected_freshness, abs=0.001)
    assert sum(one.cost_per_day for one in found.sellers) == pytest.approx(found.cost_per_day, rel=0.02)
    assert (found.sellers_in_all, found.oldest_age) == (10, 15)
    with database.reading() as connection:
        oldest = view(connection, make_settings(**POOL), NOW, order=SellerOrder.AGE, most=2)
    assert [one.seller_id for one in oldest.sellers] == ["seller 5", "seller 6"]


def test_another_interval_costs_or_saves_listing_pages_for_all_or_for_one(
    database: Database, make_settings: MakeSettings
) -> None:
    stock(database, 1000)
    stock(database, 1000, seller="other")
    with database.transaction() as connection:
        connection.execute(text("UPDATE recrawl_sellers SET look_hours = 24"))
    settings = make_settings(**POOL, page_size=500)
    usual, often = budget(database, settings), WhatIf(interval=CrawlingInterval.hours(6))
    every, one = budget(database, settings, often), budget(database, settings, often, only=SELLER)
    # Three requests for a look at each: the count and two pages.
    assert [found.listing_per_day for found in (usual, every, one)] == [6, 24, 15]
    assert every.expected_freshness > one.expected_freshness > usual.expected_freshness
    assert [(seller.seller_id, seller.look_hours) for seller in one.sellers] == [(SELLER, 6)]


def test_longer_intervals_keep_the_promise_where_listing_pages_take_too_much(
    database: Database, make_settings: MakeSettings
) -> None:
    for number in range(40):
        stock(database, 1, seller=f"seller {number}")
    settings = make_settings(**POOL, page_size=500)
    with database.transaction() as connection:
        connection.execute(text("UPDATE sellers SET interval_unit = 'HOURS', interval_amount = 1"))
    found = budget(database, settings, WhatIf(agents=1))
    # 80 pages an hour of 80 requests, and 80 sources in 24 hours.
    assert (found.affords_promise, found.remedies.agents, found.remedies.interval_hours) == (False, 2, 2)
    assert budget(database, settings, WhatIf(agents=1, interval=CrawlingInterval.hours(2))).affords_promise
    assert budget(database, settings, WhatIf(agents=2)).affords_promise


def test_where_everything_is_fetched_the_promise_is_each_interval(
    database: Database, make_settings: MakeSettings
) -> None:
    stock(database, 200_000)
    settings = make_settings(recrawl="everything", requests_per_hour=80)
    found = budget(database, settings)
    assert (found.promises_age, found.promise_kept) == (False, False)
    assert budget(database, settings, WhatIf(agents=found.remedies.agents)).promise_kept
    assert found.remedies.interval_hours is not None
    days = CrawlingInterval.days(found.remedies.interval_hours // 24)
    assert budget(database, settings, WhatIf(interval=days)).promise_kept


def test_a_broken_promise_opens_an_alert_that_ends_when_it_is_kept_again(
    database: Database, make_settings: MakeSettings
) -> None:
    stock(database, 100, oldest_hours=30)
    [rule] = [one for one in CRITERIA if one.name == "products_fresh"]

    def look() -> list[tuple[str, bool]]:
        alerting.record(database, [outcome(rule, judge(database, make_settings(**POOL)))], utc_now())
        with database.reading() as connection:
            rows = connection.execute(text("SELECT subject, ended_at IS NULL FROM alerts"))
            return [(row[0], row[1]) for row in rows]

    assert look() == [("check products_fresh", True)]
    with database.transaction() as connection:
        connection.execute(text("UPDATE recrawl_sellers SET oldest_at = :at"), {"at": NOW})
    assert look() == [("check products_fresh", False)]


def test_while_a_sweep_is_under_way_what_it_will_plan_is_estimated(open_shop: OpenShop) -> None:
    shop = open_shop()
    now = utc_now()
    judge_pool(shop.database, shop.settings, now)
    opened = open_or_join(shop.database, SellerId(SELLER), triggered_by="test", now=now).stored
    shop.change(
        "UPDATE crawling_schedule_executions SET status = 'RUNNING', started_at = now(), listed_count = 15"
        " WHERE execution_id = :id",
        id=opened.id.value,
    )
    shop.change("UPDATE recrawl_sellers SET swept_at = swept_at - interval '24 hours'")
    with shop.database.reading() as connection:
        stored = executions.get(connection, opened.id)
        ahead = look(connection, shop.settings, stored, now)
    # Three pages, three new products, and what a day's worth of the promise takes of the other twelve.
    assert (ahead.is_estimate, ahead.expected_tasks >= 3 + 6 + 24, ahead.expected_tasks <= 3 + 30) == (True, True, True)
