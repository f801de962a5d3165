"""Products compared with a real marketplace: a change in between is no error, and an error is found."""

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text

from mustit_pipeline.agents import roster
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.monitoring.spot_checks import TruthReport, spot_check
from mustit_pipeline.monitoring.sql import spot_checks
from mustit_pipeline.settings import Settings
from mustit_pipeline.simulator.control import MarketplaceControl
from mustit_pipeline.simulator.process import RunningSimulator
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration.crawls import crawl, register

SELLER = "한글 & a/b 50%"
PRODUCTS = 5
# So many draws that each of a handful of products is among them.
MANY = 200
Item = int


@pytest.fixture
def settings(
    database: Database, make_settings: MakeSettings, marketplace: RunningSimulator, market: MarketplaceControl
) -> Settings:
    """A crawled seller."""
    made = make_settings(base_url=marketplace.url, truth_sample=MANY, truth_seconds=20)
    market.add_seller(SELLER, PRODUCTS)
    register(database, SELLER)
    crawl(database, made, SELLER)
    return made


def verdicts(database: Database) -> dict[str, int]:
    with database.reading() as connection:
        return Counter(connection.execute(text("SELECT verdict FROM truth_samples")).scalars())


def write(database: Database, statement: str, **values: Any) -> None:
    with database.transaction() as connection:
        connection.execute(text(statement), values)


def change_detail(market: MarketplaceControl) -> Item:
    item = market.products(SELLER)[0]["itemNo"]
    market.set_fields(SELLER, item, stock=4711)
    return item


def corrupt(database: Database, item: Item) -> None:
    """What we have is not what was said, and a hash that lies keeps every crawl from noticing."""
    write(
        database,
        """UPDATE products SET detail_data_hash = md5('wrong'), detail_data = '{"info": {"stock": 1}}'
           WHERE item_no = :item""",
        item=item,
    )


def test_products_that_are_as_the_marketplace_has_them_are_equal(
    database: Database, settings: Settings, market: MarketplaceControl
) -> None:
    market.reset_audit()

    report = spot_check(database, settings)

    assert report == TruthReport(compared=PRODUCTS, unanswered=0, requests=2 * PRODUCTS)
    assert verdicts(database) == {"EQUAL": PRODUCTS}
    asked = Counter(url.rsplit("/", 1)[-1] for url in market.requested_urls() if url != "/")
    assert asked == {"top": PRODUCTS, "options": PRODUCTS}


@pytest.mark.untouched_database
def test_a_change_since_our_last_fetch_is_undecided_until_a_crawl_has_noticed_it(
    database: Database, settings: Settings, market: MarketplaceControl
) -> None:
    change_detail(market)

    spot_check(database, settings)
    assert verdicts(database) == {"EQUAL": PRODUCTS - 1, "OPEN": 1}

    # Asked again before any crawl it proves nothing either, and is no second suspect.
    spot_check(database, settings)
    assert verdicts(database)["OPEN"] == 1

    crawl(database, settings, SELLER)
    spot_check(database, settings)
    assert (verdicts(database)["EXPLAINED"], verdicts(database)["OPEN"], verdicts(database)["WRONG"]) == (1, 0, 0)


def test_what_the_marketplace_said_before_and_after_our_fetch_proves_us_wrong(
    database: Database, settings: Settings, market: MarketplaceControl
) -> None:
    item = market.products(SELLER)[0]["itemNo"]
    corrupt(database, item)
    spot_check(database, settings)
    assert verdicts(database)["OPEN"] == 1

    crawl(database, settings, SELLER)
    corrupt(database, item)
    spot_check(database, settings)

    assert verdicts(database)["WRONG"] == 1
    with database.reading() as connection:
        [named] = spot_checks.wrong(connection, settings_epoch(database), 10)
    assert named == f"{SELLER} {item} (detail)"


def settings_epoch(database: Database) -> Any:
    with database.reading() as connection:
        return connection.execute(text("SELECT now() - interval '1 hour'")).scalar_one()


def test_a_product_that_changes_all_the_time_is_never_called_wrong(
    database: Database, settings: Settings, market: MarketplaceControl
) -> None:
    item = change_detail(market)
    spot_check(database, settings)
    crawl(database, settings, SELLER)
    market.set_fields(SELLER, item, stock=4712)

    spot_check(database, settings)

    assert (verdicts(database)["OPEN"], verdicts(database)["WRONG"]) == (1, 0)


def test_a_change_that_no_crawl_has_noticed_in_time_is_wrong(
    database: Database, settings: Settings, market: MarketplaceControl
) -> None:
    write(database, "UPDATE crawling_schedule_executions SET started_at = started_at - interval '10 days'")
    change_detail(market)
    spot_check(database, settings)
    # Two intervals of a day, and a day for the delivery.
    for ago, found in ((timedelta(days=3) - timedelta(minutes=5), "OPEN"), (timedelta(days=3), "WRONG")):
        write(
            database,
            "UPDATE truth_samples SET sampled_at = now() - CAST(:ago AS interval) WHERE verdict = 'OPEN'",
            ago=ago,
        )
        spot_check(database, settings)
        assert verdicts(database)[found] == 1


def test_a_product_that_is_gone_waits_for_the_sweeps_that_prove_it(
    database: Database, settings: Settings, market: MarketplaceControl
) -> None:
    market.add_products(SELLER, 10)
    crawl(database, settings, SELLER)
    market.remove(SELLER, [market.products(SELLER)[0]["itemNo"]])
    spot_check(database, settings)
    assert verdicts(database)["OPEN"] == 1

    crawl(database, settings, SELLER)
    spot_check(database, settings)
    assert verdicts(database)["OPEN"] == 1

    crawl(database, settings, SELLER)
    spot_check(database, settings)
    assert (verdicts(database)["EXPLAINED"], verdicts(database)["OPEN"]) == (1, 0)


def test_no_request_is_sent_without_an_agent_and_nothing_is_judged_then(
    database: Database, settings: Settings, market: MarketplaceControl, make_settings: MakeSettings
) -> None:
    with database.transaction() as connection:
        for agent in roster.list_agents(connection):
            roster.block(connection, agent.agent_id)
    market.reset_audit()

    report = spot_check(database, settings.model_copy(update={"truth_seconds": 0.2}))

    assert report == TruthReport(compared=0, unanswered=PRODUCTS, requests=0)
    assert (market.requested_urls(), verdicts(database)) == ({}, {})


def test_an_answer_that_cannot_be_read_judges_nothing(
    database: Database, settings: Settings, market: MarketplaceControl
) -> None:
    market.fault("html", "detail")

    assert spot_check(database, settings).unanswered == PRODUCTS
    assert verdicts(database) == {}


def test_only_published_products_of_active_sellers_are_drawn(database: Database, settings: Settings) -> None:
    write(database, "UPDATE sellers SET status = 'INACTIVE'")

    assert spot_check(database, settings) == TruthReport(0, 0, 0)


def test_a_suspect_of_a_seller_that_is_not_active_any_more_is_neither_asked_about_nor_called_wrong(
    database: Database, settings: Settings, market: MarketplaceControl
) -> None:
    change_detail(market)
    spot_check(database, settings)
    write(database, "UPDATE truth_samples SET sampled_at = now() - interval '4 days' WHERE verdict = 'OPEN'")
    write(database, "UPDATE sellers SET status = 'INACTIVE'")
    market.reset_audit()

    spot_check(database, settings)

    assert (market.requested_urls(), verdicts(database)) == ({}, {"EQUAL": PRODUCTS - 1})

    # Back again it has the whole time to notice, as if it had never been looked at.
    write(database, "UPDATE sellers SET status = 'ACTIVE'")
    spot_check(database, settings)
    assert (verdicts(database)["OPEN"], verdicts(database)["WRONG"]) == (1, 0)


@pytest.mark.parametrize("proof", ["refetched", "overdue"])
def test_suspects_that_wait_for_a_rare_crawl_keep_no_other_from_its_verdict(
    database: Database, settings: Settings, market: MarketplaceControl, proof: str
) -> None:
    """A seller that is crawled once a month differs in more products than one look takes."""
    few = settings.model_copy(update={"truth_sample": 3})
    market.add_seller("monthly", 6)
    register(database, "monthly")
    crawl(database, settings, "monthly")
    write(database, "UPDATE crawling_schedule_executions SET started_at = started_at - interval '30 days'")
    write(database, "UPDATE sellers SET interval_unit = 'DAYS', interval_amount = 30 WHERE seller_id = 'monthly'")
    for product in market.products("monthly"):
        market.set_fields("monthly", product["itemNo"], stock=4711)
    spot_check(database, settings)
    write(database, "UPDATE truth_samples SET sampled_at = now() - interval '9 days' WHERE verdict = 'OPEN'")
    item = market.products(SELLER)[0]["itemNo"]
    corrupt(database, item)
    spot_check(database, settings)
    if proof == "refetched":
        crawl(database, settings, SELLER)
        corrupt(database, item)
    else:
        overdue = "UPDATE truth_samples SET sampled_at = now() - interval '4 days' WHERE seller_id = :seller"
        write(database, overdue + " AND verdict = 'OPEN'", seller=SELLER)

    spot_check(database, few)

    with database.reading() as connection:
        assert spot_checks.wrong(connection, settings_epoch(database), 10) == [f"{SELLER} {item} (detail)"]
