"""The marketplace forgets every session at once, as a deploy of it may: the crawl goes on with new ones."""

from mustit_pipeline.crawling.crawl import Crawl
from mustit_pipeline.crawling.steering import open_or_join
from mustit_pipeline.domain.states import ExecutionStatus
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.settings import Settings
from mustit_pipeline.simulator.control import MarketplaceControl
from mustit_pipeline.simulator.process import RunningSimulator
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration.crawling.checks import check_outcomes, number
from mustit_pipeline_tests.integration.crawls import crawl, register

SESSIONS = "SELECT count(session) FROM user_agents"
LEAST_HEALTH = "SELECT min(health) FROM user_agents"


def give_everybody_a_session(database: Database, settings: Settings, market: MarketplaceControl) -> None:
    market.add_seller("other", 150)
    register(database, "other")
    crawl(database, settings, "other")
    assert number(database, SESSIONS) == 50


def crawl_unharmed(database: Database, settings: Settings) -> None:
    """Nothing fails, no retry is spent, and each agent pays for one lost session at most."""
    stored = crawl(database, settings, "s").stored
    assert stored.execution.status is ExecutionStatus.COMPLETED
    rows = check_outcomes(database, stored.execution.id)
    assert {(row.status, row.retry_count) for row in rows.values()} == {("COMPLETED", 0)}
    assert number(database, LEAST_HEALTH) >= 95


def test_sessions_that_are_forgotten_before_the_count_call_cost_it_one_repeat(
    database: Database, make_settings: MakeSettings, marketplace: RunningSimulator, market: MarketplaceControl
) -> None:
    """Each repeat was made with another stale session, until the crawl had failed."""
    settings = make_settings(base_url=marketplace.url)
    give_everybody_a_session(database, settings, market)
    market.add_seller("s", 10)
    register(database, "s")
    market.forget_sessions()

    opened = open_or_join(database, SellerId("s"), triggered_by="test", now=utc_now())
    Crawl(database, settings, opened.stored).sweep(60)

    assert [times for url, times in market.requested_urls().items() if "sellerId=s&" in url and "Size=1&" in url] == [2]
    crawl_unharmed(database, settings)


def test_sessions_that_are_forgotten_in_mid_crawl_spend_no_retry(
    database: Database, make_settings: MakeSettings, marketplace: RunningSimulator, market: MarketplaceControl
) -> None:
    settings = make_settings(base_url=marketplace.url)
    give_everybody_a_session(database, settings, market)
    market.add_seller("s", 10)
    register(database, "s")
    opened = open_or_join(database, SellerId("s"), triggered_by="test", now=utc_now())
    Crawl(database, settings, opened.stored).sweep(60)
    market.forget_sessions()

    crawl_unharmed(database, settings)
