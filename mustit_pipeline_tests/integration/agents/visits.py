"""What a test does with a pool that works against a marketplace over HTTP."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from mustit_pipeline.agents import roster
from mustit_pipeline.agents.pool import AgentPool, Booking, Outcome, Wait, WaitReason
from mustit_pipeline.agents.sql import agent_pool, agents
from mustit_pipeline.agents.sql.agents import AgentRow
from mustit_pipeline.agents.vault import SessionVault
from mustit_pipeline.domain.user_agent import AgentRules
from mustit_pipeline.domain.values import Token
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.marketplace.client import MarketplaceClient
from mustit_pipeline.marketplace.session import Session
from mustit_pipeline_tests.integration.agents.servers import Marketplace, settings_of


@asynccontextmanager
async def opened(
    home: Path, database: Database, redis_url: str | None = None, marketplace: Marketplace | None = None, **changes: Any
) -> AsyncIterator[tuple[AgentPool, Marketplace]]:
    async with marketplace or Marketplace() as server:
        settings = settings_of(**{"home": home, "base_url": server.url, "min_request_gap_seconds": 0, **changes})
        async with (
            MarketplaceClient(settings) as client,
            AgentPool(settings, database, client, redis_url=redis_url) as pool,
        ):
            yield pool, server


async def booking_of(pool: AgentPool) -> Booking:
    """The next booking, waiting as long as the pool says."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        answer = await pool.acquire()
        if isinstance(answer, Booking):
            return answer
        await asyncio.sleep(min(answer.seconds, 1.0))
    raise AssertionError("no booking")


async def wait_of(pool: AgentPool, reason: WaitReason) -> Wait:
    answer = await pool.acquire()
    assert isinstance(answer, Wait), answer
    assert answer.reason is reason
    return answer


async def refused(pool: AgentPool) -> Wait:
    """The first refusal of the breaker."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        answer = await pool.acquire()
        if isinstance(answer, Wait) and answer.reason is WaitReason.BREAKER:
            return answer
        if isinstance(answer, Booking):
            await pool.settle(answer, Outcome.NOT_SENT)
        await asyncio.sleep(0.02)
    raise AssertionError("the breaker never opened")


async def no_throttling(agent_id: UUID, asked: float, retry_after: float | None) -> None:
    raise AssertionError(f"{agent_id} was throttled")


def rows(database: Database) -> dict[str, AgentRow]:
    with database.reading() as connection:
        return {row.user_agent: row for row in agents.read_agents(connection)}


def shared(database: Database) -> agent_pool.PoolRow:
    with database.reading() as connection:
        return agent_pool.read_pool(connection)


async def until(holds: Callable[[], bool], seconds: float = 5.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it never came true"
        await asyncio.sleep(0.02)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 25))  # pyright: ignore[reportArgumentType]


async def bookings(pool: AgentPool, number: int) -> Sequence[Booking]:
    return [await booking_of(pool) for _ in range(number)]


def product(number: int) -> str:
    """Where a product's details are."""
    return f"/item/{number}/detail/top"


async def refuse(pool: AgentPool, in_flight: Sequence[Booking], retry_after: float | None = None) -> None:
    """A 429 each: the last one to a listing that was asked for as a control, the others to different products."""
    *products, control = in_flight
    for number, booking in enumerate(products):
        await pool.record_429(booking, retry_after, url=product(number))
    await pool.record_429(control, retry_after, url="/listing?sellerId=s", control=True)


def block(database: Database, *names: str) -> None:
    known = rows(database)
    with database.transaction() as connection:
        for name in names:
            roster.block(connection, known[name].agent_id)


def stored_session(database: Database, home: Path, name: str, left: timedelta) -> Session:
    """A session of two hours of which so much is left, in the table and in no process's memory."""
    known, ends = rows(database)[name], datetime.now(UTC) + left
    session = Session(Token("ending"), "nid", "uid", ends, timedelta(hours=2))
    with database.transaction() as connection:
        [agent] = agents.lock_agents(connection, [known.agent_id], AgentRules())
        agent.issued(ends)
        sealed = SessionVault(settings_of(home=home).token_keys()).seal(known.agent_id, 1, session)
        assert agents.store_session(connection, known.agent_id, sealed, agent)
    return session
