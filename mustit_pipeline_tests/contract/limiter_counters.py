"""Both counters behind one face, on servers of their own."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from sqlalchemy import text

from mustit_pipeline.agents.limiter import Limiter
from mustit_pipeline.agents.postgres_limiter import PostgresLimiter
from mustit_pipeline.agents.redis_limiter import RedisLimiter
from mustit_pipeline.agents.redis_link import RedisLink
from mustit_pipeline.agents.sql import agent_bookings
from mustit_pipeline.agents.sql.agent_bookings import AgentLimits
from mustit_pipeline.agents.sql.agents import AgentRow, read_agents
from mustit_pipeline.foundation.database import Database
from mustit_pipeline_tests.integration.agents.servers import (
    RedisServer,
    empty_pool,
    migrated_database,
)

START = 1_800_000_000.0
HOLD = 10.0
EPOCH = 0
THREE_A_MINUTE = AgentLimits(requests=3, window=60.0, gap=1.0)
T = TypeVar("T")


@dataclass
class Counter:
    """One of the two limiters on servers of its own, emptied for every use."""

    name: str
    database: Database
    redis: RedisServer

    def run(self, limits: AgentLimits, agents: int, scenario: Callable[[Limiter], Awaitable[T]]) -> T:
        empty_pool(self.database, agents)
        return asyncio.run(self._run(limits, scenario))

    async def _run(self, limits: AgentLimits, scenario: Callable[[Limiter], Awaitable[T]]) -> T:
        self.redis.client().flushall()
        if self.name == "postgres":
            self._free_from(START)
            return await scenario(PostgresLimiter(self.database, limits))
        link = await RedisLink.open(self.redis.url)
        try:
            limiter = RedisLimiter(link, limits)
            with self.database.reading() as connection:
                seed, rows = agent_bookings.read_seed(connection, limits), read_agents(connection)
            await limiter.seed(EPOCH, seed, rows, now=START)
            return await scenario(limiter)
        finally:
            await link.close()

    def _free_from(self, moment: float) -> None:
        with self.database.transaction() as connection:
            connection.execute(
                text("UPDATE agent_limits SET next_free_at = :moment"), {"moment": datetime.fromtimestamp(moment, UTC)}
            )

    async def tell(self, limiter: Limiter, rows: Sequence[AgentRow], now: float) -> None:
        """Change the agents where each counter looks for them."""
        with self.database.transaction() as connection:
            connection.execute(
                text("""
                    UPDATE user_agents SET status = :status, health = :health, token_expires_at = :expires,
                        session = CASE WHEN CAST(:expires AS timestamptz) IS NOT NULL THEN '\\x00'::bytea END,
                        session_key_id = CASE WHEN CAST(:expires AS timestamptz) IS NOT NULL THEN 'k' END,
                        suspended_until = CASE WHEN :status = 'SUSPENDED' THEN clock_timestamp() END
                    WHERE agent_id = :id
                """),
                [
                    {"id": row.agent_id, "status": row.status, "health": row.health, "expires": row.token_expires_at}
                    for row in rows
                ],
            )
        await limiter.publish(EPOCH, rows, now=now)


@contextmanager
def counter_of(name: str, folder: Path) -> Iterator[Counter]:
    """One of the two, with its servers running."""
    with migrated_database() as database, RedisServer(folder) as redis:
        yield Counter(name, database, redis)
