"""The token page is slow: it holds up no agent that has a token, and no worker that is to stop."""

import asyncio

import pytest
from sqlalchemy import text

from mustit_pipeline.crawling.worker import Worker
from mustit_pipeline_tests.conftest import TestServers
from mustit_pipeline_tests.integration.agents.servers import empty_pool
from mustit_pipeline_tests.integration.crawling.checks import number
from mustit_pipeline_tests.integration.crawling.child import wait_until
from mustit_pipeline_tests.integration.crawling.sites import HELD, HURT, Site

SLOW = "agent-000"
SESSIONS = "SELECT count(session) FROM user_agents"
ISSUING = "SELECT count(*) FROM user_agents WHERE issue_owner IS NOT NULL"


@pytest.mark.parametrize("counter", ["redis", "postgres"])
def test_an_agent_whose_token_is_slow_to_come_holds_up_no_other(
    site: Site, test_servers: TestServers, counter: str
) -> None:
    """One call for a token once kept every booking that was asked for with it waiting, and all later ones."""
    empty_pool(site.database, 3)
    site.market.fault("slow", "session", agents=[SLOW], seconds=50)

    async def fetch_all(worker: Worker) -> None:
        await worker.run()
        # Everything was fetched by the others, and the slow one's token is still under way.
        assert (site.asked(), worker.report.completed) == (80, 80)
        assert number(site.database, ISSUING) == 1

    redis_url = test_servers.servers.redis_url if counter == "redis" else None
    patient = {"read_timeout_seconds": 60, "total_timeout_seconds": 60}
    site.run(fetch_all, redis_url=redis_url, grace_seconds=0.2, **patient)
    assert number(site.database, HELD) == number(site.database, HURT) == number(site.database, ISSUING) == 0


def test_a_worker_that_waits_for_session_tokens_stops_within_the_grace_time(site: Site) -> None:
    """It once waited for its bookings first, then for their tokens, however long the marketplace took to give them."""
    with site.database.transaction() as connection:
        forgotten = "session = NULL, session_key_id = NULL, token_expires_at = NULL, revision = revision + 1"
        connection.execute(text(f"UPDATE user_agents SET {forgotten}"))
    site.market.fault("slow", "session", seconds=8)
    took: list[float] = []

    async def stop_while_booking(worker: Worker) -> None:
        working = asyncio.create_task(worker.run())
        await asyncio.to_thread(wait_until, lambda: number(site.database, HELD))
        await asyncio.sleep(0.2)
        began = asyncio.get_running_loop().time()
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        took.append(asyncio.get_running_loop().time() - began)

    site.run(stop_while_booking, grace_seconds=0.2)
    assert took[0] < 5
    # No answer was waited for, and others may ask.
    assert number(site.database, SESSIONS) == number(site.database, ISSUING) == 0
    assert number(site.database, HELD) == number(site.database, HURT) == 0
    assert site.asked() == 0
    site.market.clear_faults()
    site.finish()
    assert site.asked() == 80
