"""Listed items that are another seller's: skipped and counted, and no failure of the crawl."""

from typing import Any

import pytest

from mustit_pipeline.cli.crawl import CrawlSummary, tell
from mustit_pipeline.crawling.crawl import Crawl
from mustit_pipeline.crawling.steering import open_or_join
from mustit_pipeline.domain.states import LifeCycle, SweepStatus
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration.catalog.shelf import assert_whole
from mustit_pipeline_tests.integration.crawling.checks import number
from mustit_pipeline_tests.integration.crawling.drifting import ITEMS, SELLER, DriftingMarketplace
from mustit_pipeline_tests.integration.crawls import CrawlOutcome, crawl, register

OURS, FOREIGN = ITEMS
INCOMPLETE = "SELECT count(*) FROM products WHERE NOT complete AND deleted_at IS NULL AND foreign_at IS NULL"


class Owners:
    """Whose the second item is, and what the listing says of it."""

    def __init__(self) -> None:
        self.owner = "another"
        self.price = "545,600"

    def __call__(self, source: str, item_no: int | None, body: Any) -> Any:
        if source == "detail" and item_no == FOREIGN:
            body["moduleList"][1]["data"]["sellerId"] = self.owner
        if source == "listing" and len(body["items"]) == len(ITEMS):
            body["items"][1]["price"] = self.price
        return body


def summary(outcome: CrawlOutcome) -> tuple[int, int, SweepStatus]:
    stored = outcome.stored
    return stored.execution.failed_tasks, stored.foreign_items, stored.sweep_status


def asked_for(market: DriftingMarketplace, item: int) -> int:
    return sum(f"/{item}/" in target for target in market.asked)


def test_another_sellers_item_is_skipped_and_asked_again_only_when_its_listing_entry_changes(
    database: Database, make_settings: MakeSettings, drifting: DriftingMarketplace
) -> None:
    settings = make_settings(base_url=drifting.url)
    register(database, SELLER)
    drifting.change = owners = Owners()

    first = crawl(database, settings, SELLER)

    assert summary(first) == (0, 1, SweepStatus.COMPLETE)
    assert (first.stored.skipped_items, first.report.failed_bodies, first.report.versions) == (
        0,
        0,
        {LifeCycle.CREATED: 1},
    )
    assert number(database, INCOMPLETE) == 0
    for _ in range(2):
        drifting.asked.clear()
        assert summary(crawl(database, settings, SELLER)) == (0, 1, SweepStatus.COMPLETE)
        assert (asked_for(drifting, FOREIGN), asked_for(drifting, OURS)) == (0, 2)

    owners.price = "500,000"
    drifting.asked.clear()
    again = crawl(database, settings, SELLER)
    assert (summary(again), again.report.versions) == ((0, 1, SweepStatus.COMPLETE), {})
    assert asked_for(drifting, FOREIGN) == 2
    drifting.asked.clear()
    assert summary(crawl(database, settings, SELLER)) == (0, 1, SweepStatus.COMPLETE)
    assert asked_for(drifting, FOREIGN) == 0

    owners.price, owners.owner = "400,000", SELLER
    back = crawl(database, settings, SELLER)
    assert (summary(back), back.report.versions) == ((0, 0, SweepStatus.COMPLETE), {LifeCycle.CREATED: 1})
    assert_whole(database)


def test_another_sellers_item_that_loses_its_price_is_not_asked_again(
    database: Database, make_settings: MakeSettings, drifting: DriftingMarketplace, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without its price an entry differs from what was stored of it, which has the price that it had."""
    settings = make_settings(base_url=drifting.url)
    register(database, SELLER)
    drifting.change = owners = Owners()
    crawl(database, settings, SELLER)
    owners.price = ""
    drifting.asked.clear()

    outcome = crawl(database, settings, SELLER)

    assert asked_for(drifting, FOREIGN) == 0
    tell(CrawlSummary(outcome.stored))
    assert "1 listed of another seller" in " ".join(capsys.readouterr().out.split())


def test_the_recrawl_policy_takes_another_sellers_item_for_no_new_product(
    database: Database, make_settings: MakeSettings, drifting: DriftingMarketplace
) -> None:
    settings = make_settings(base_url=drifting.url, recrawl="adaptive")
    register(database, SELLER)
    drifting.change = Owners()
    crawl(database, settings, SELLER)
    drifting.asked.clear()

    assert summary(crawl(database, settings, SELLER)) == (0, 1, SweepStatus.COMPLETE)

    assert asked_for(drifting, FOREIGN) == 0
    assert number(database, "SELECT products FROM recrawl_sellers") == 1


def test_a_crawl_that_breaks_off_before_it_has_asked_leaves_that_to_the_next_one(
    database: Database, make_settings: MakeSettings, drifting: DriftingMarketplace
) -> None:
    settings = make_settings(base_url=drifting.url)
    register(database, SELLER)
    drifting.change = owners = Owners()
    crawl(database, settings, SELLER)
    owners.price, owners.owner = "400,000", SELLER
    opened = open_or_join(database, SellerId(SELLER), triggered_by="test", now=utc_now())
    Crawl(database, settings, opened.stored).sweep(60)
    with database.transaction() as connection:
        connection.exec_driver_sql("UPDATE crawler_tasks SET status = 'FAILED', error_code = 'X', error_text = 'x'"
                                   " WHERE status = 'PUBLISHED'")  # fmt: skip
        connection.exec_driver_sql("UPDATE crawling_schedule_executions SET status = 'CANCELLED', ended_at = now()"
                                   " WHERE status = 'RUNNING'")  # fmt: skip

    assert crawl(database, settings, SELLER).report.versions[LifeCycle.CREATED] == 1


def test_a_published_product_that_becomes_another_sellers_is_changed_no_more(
    database: Database, make_settings: MakeSettings, drifting: DriftingMarketplace
) -> None:
    settings = make_settings(base_url=drifting.url)
    register(database, SELLER)
    crawl(database, settings, SELLER)
    drifting.change = owners = Owners()

    first = crawl(database, settings, SELLER)
    owners.price = "1,000"
    second = crawl(database, settings, SELLER)

    assert [summary(one) for one in (first, second)] == [(0, 1, SweepStatus.COMPLETE)] * 2
    assert (first.report.versions, second.report.versions) == ({}, {})
    assert number(database, "SELECT count(*) FROM products WHERE deleted_at IS NOT NULL") == 0


@pytest.mark.parametrize("written", ["DMONT", "Dmont"])
def test_a_difference_of_case_alone_is_no_other_seller(
    database: Database, make_settings: MakeSettings, drifting: DriftingMarketplace, written: str
) -> None:
    register(database, SELLER)
    drifting.change = owners = Owners()
    owners.owner = written

    outcome = crawl(database, make_settings(base_url=drifting.url), SELLER)

    assert (summary(outcome), outcome.report.versions) == ((0, 0, SweepStatus.COMPLETE), {LifeCycle.CREATED: 2})


def test_a_probe_is_not_confirmed_by_a_difference_of_case(
    database: Database, make_settings: MakeSettings, drifting: DriftingMarketplace
) -> None:
    settings = make_settings(base_url=drifting.url, deletion_sweeps=1, deletion_hold_share=0.9)
    register(database, SELLER)
    crawl(database, settings, SELLER)

    def unlisted(source: str, item_no: int | None, body: Any) -> Any:
        if source == "listing":
            body |= {"count": 1, "items": body["items"][:1]}
        if source == "detail":
            body["moduleList"][1]["data"]["sellerId"] = SELLER.upper()
        return body

    drifting.change = unlisted
    crawl(database, settings, SELLER)

    assert asked_for(drifting, FOREIGN) > 2
    assert number(database, "SELECT count(*) FROM products WHERE deleted_at IS NOT NULL") == 0
