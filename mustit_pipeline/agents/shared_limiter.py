"""Redis counts while it works, otherwise PostgreSQL, and never both: the workers hand the counting over together.

A worker books in Redis only if PostgreSQL has confirmed within the last LEASE_SECONDS that Redis counts. To leave
Redis, one worker declares the move (a new epoch). Each worker that reads the new epoch writes its bookings and reports.
A silent worker has stopped booking after MOVE_SECONDS, and the bookings that it may have left unwritten count as used.
PostgreSQL counts from then on, until a worker seeds Redis from PostgreSQL.
"""

import asyncio
import time
from collections.abc import Awaitable, Sequence
from datetime import timedelta
from uuid import uuid4

import structlog
from sqlalchemy import Connection

from mustit_pipeline.agents.journal import Journal
from mustit_pipeline.agents.limiter import FreeIn, Slot
from mustit_pipeline.agents.postgres_limiter import PostgresLimiter
from mustit_pipeline.agents.redis_door import RedisDoor
from mustit_pipeline.agents.redis_link import RedisDamaged, RedisForgot, RedisLost
from mustit_pipeline.agents.sql import agent_bookings, agent_pool
from mustit_pipeline.agents.sql.agent_bookings import AgentLimits, CountedElsewhere
from mustit_pipeline.agents.sql.agent_pool import PoolRow
from mustit_pipeline.agents.sql.agents import AgentRow, read_agents
from mustit_pipeline.foundation.database import Database

LEASE_SECONDS = 2.0
MOVE_SECONDS = 3.0
SEEDING_SECONDS = 2.0
PRUNE_SECONDS = 60.0
log = structlog.get_logger(__name__)


class SharedLimiter:
    """Books agents for one process, in Redis or in PostgreSQL."""

    def __init__(self, database: Database, limits: AgentLimits, hold: float, redis_url: str | None) -> None:
        self._database = database
        self._limits = limits
        self._hold = hold
        self._door = RedisDoor(redis_url, limits)
        self._postgres = PostgresLimiter(database, limits)
        self._journal = Journal()
        # A silent worker counts as this many bookings per agent, so no worker leaves more unwritten. Within its lease
        # it could not book more than the gap allows.
        self._most_unwritten = max(1, limits.requests // 10)
        if limits.gap > 0:
            self._most_unwritten = min(self._most_unwritten, 1 + int(LEASE_SECONDS / limits.gap))
        self.worker_id = uuid4()
        self._counter, self._epoch = "moving", -1
        self.shared: tuple[PoolRow, float] | None = None
        self._confirmed = self._adopted = self._pruned = self._synced = float("-inf")
        self._turn = asyncio.Lock()
        self._used_redis = False

    @property
    def counter(self) -> str:
        """The counter that this process knows: `redis`, `postgres`, or `moving`."""
        return self._counter

    async def start(self) -> None:
        """Read the present counter, and move to Redis if it answers."""
        await self._door.first_try()
        await self.sync()

    async def acquire(self) -> Slot | FreeIn:
        """The best free agent, or when the next one is free."""
        for _ in range(6):
            counter, epoch, redis = self._counter, self._epoch, self._door.limiter
            try:
                if counter == "postgres":
                    answer = await self._postgres.acquire(epoch, self._hold)
                elif counter == "redis" and redis is not None and self._is_leased:
                    answer = await redis.acquire(epoch, self._hold)
                    self._used_redis = True
                    if (self._counter, self._epoch) != (counter, epoch) or not self._is_leased:
                        if isinstance(answer, Slot):
                            await redis.withdraw(epoch, answer, 0.0)
                        continue
                else:
                    await self.sync()
                    if self._counter == "moving":
                        return FreeIn(0.1)
                    continue
            except (RedisLost, RedisForgot) as error:
                # Right after a hand-over Redis may not be seeded yet.
                if type(error) is RedisForgot and time.monotonic() - self._adopted < SEEDING_SECONDS:
                    return FreeIn(0.05)
                await self._leave_redis(epoch, str(error))
                await self.sync()
                continue
            except CountedElsewhere:
                await self.sync()
                continue
            if isinstance(answer, Slot):
                self._journal.note_booking(answer, written=counter == "postgres")
                if self._journal.unwritten(answer.agent_id) >= self._most_unwritten:
                    await self.sync()
            return answer
        return FreeIn(0.1)

    async def settle(self, slot: Slot, *, throttled: bool = False) -> None:
        """The answer has arrived: the slot frees one window from now."""
        self._journal.note_answer(slot, throttled=throttled)
        epoch, redis = self._epoch, self._door.limiter
        if self._counter == "redis" and redis is not None:
            await self._update_redis(epoch, redis.settle(epoch, slot), "an answer: its booking ends when it expires")
        else:
            await self.sync()

    def leave(self, slot: Slot) -> None:
        """No answer will be known: the booking ends when it expires, like that of a dead worker."""
        self._journal.note_loss(slot)

    async def withdraw(self, slot: Slot, pause: float) -> None:
        """Nothing was sent: the slot is free again, its agent after `pause` seconds."""
        # Not during a report: it could write the booking after it was removed.
        async with self._turn:
            epoch, redis = self._epoch, self._door.limiter
            if self._counter == "postgres":
                await self._postgres.withdraw(epoch, slot, pause)
                self._journal.forget(slot)
                return
            self._journal.withdraw(slot)
            if self._counter == "redis" and redis is not None:
                withdrawing = redis.withdraw(epoch, slot, pause)
                await self._update_redis(epoch, withdrawing, "a withdrawn booking: it ends when it expires")

    async def publish(self, agents: Sequence[AgentRow]) -> None:
        """Publish the agents' status, health and tokens to Redis, if Redis counts."""
        epoch, redis = self._epoch, self._door.limiter
        if self._counter == "redis" and redis is not None:
            await self._update_redis(epoch, redis.publish(epoch, agents), "the agents: the next call finds out why")

    async def _update_redis(self, epoch: int, update: Awaitable[None], what: str) -> None:
        """Send Redis an update that may be lost; if its counts are damaged, leave Redis."""
        try:
            await update
        except RedisDamaged as error:
            await self._leave_redis(epoch, str(error))
        except (RedisLost, RedisForgot):
            log.info("Redis missed an update", what=what)

    async def sync(self) -> None:
        """Write the journal, read the present counter, and do this worker's part of a move."""
        asked = time.monotonic()
        async with self._turn:
            # Another task's sync that began after this call has done it all.
            if self._synced > asked:
                return
            for _ in range(8):
                pool = await self._report()
                if not self._adopt(pool) and not await self._advance(pool):
                    return

    async def close(self) -> None:
        """Write the journal and sign off."""
        async with self._turn:
            await self._report()
            await self._database.transact(lambda connection: agent_pool.remove_worker(connection, self.worker_id))
        await self._door.close()

    @property
    def _is_leased(self) -> bool:
        return time.monotonic() < self._confirmed + LEASE_SECONDS

    async def _report(self) -> PoolRow:
        started = time.monotonic()
        due = self._journal.take()
        records, gone = self._journal.records(due), self._journal.gone()
        epoch, reaches = self._epoch, self._door.connect_if_due()
        pruning = started - self._pruned > PRUNE_SECONDS

        def write(connection: Connection) -> PoolRow:
            agent_bookings.record(connection, records, self._limits)
            agent_bookings.remove(connection, gone)
            agent_pool.report_worker(connection, self.worker_id, epoch, reaches_redis=reaches)
            if pruning:
                age = self._limits.window + self._hold + PRUNE_SECONDS
                agent_bookings.prune(connection, age)
                agent_pool.remove_forgotten_workers(connection, age)
            return agent_pool.read_pool(connection)

        try:
            pool = await self._database.transact(write)
        except BaseException:
            self._journal.keep(due)
            raise
        self._journal.note_written(due, [record.booking_id for record in records if record.fresh], gone)
        self._pruned = started if pruning else self._pruned
        self._synced, self.shared = started, (pool, started)
        if (pool.counter, pool.epoch) == (self._counter, self._epoch):
            self._confirmed = started
        return pool

    def _adopt(self, pool: PoolRow) -> bool:
        """Take over PostgreSQL's counter and epoch; True if they are new and must be reported first."""
        if (pool.counter, pool.epoch) == (self._counter, self._epoch):
            return False
        self._counter, self._epoch, self._adopted = pool.counter, pool.epoch, time.monotonic()
        # No booking in Redis before this worker has reported the new epoch.
        self._confirmed = float("-inf")
        return True

    async def _advance(self, pool: PoolRow) -> bool:
        """Take the next step of a move, if any; True if something has changed."""
        if pool.counter == "moving":
            return await self._database.transact(self._finish_move)
        if pool.counter == "postgres":
            return self._door.connect_if_due() and await self._enter_redis()
        if not await self._door.reach(pool.redis_run_id):
            await self._leave_redis(pool.epoch, "it cannot be reached, or is not the server that was seeded")
            return True
        return False

    async def _leave_redis(self, epoch: int, why: str) -> None:
        def declare(connection: Connection) -> bool:
            pool = agent_pool.lock_counter(connection)
            if pool.counter != "redis" or pool.epoch != epoch:
                return False
            agent_pool.set_counter(connection, "moving", epoch + 1, None)
            return True

        if await self._database.transact(declare):
            # At the start this is normal: an embedded Redis starts empty and is seeded soon.
            report = log.warning if self._used_redis else log.info
            report("Redis no longer counts requests, PostgreSQL takes over", why=why)
        self._door.drop_if_broken()

    def _finish_move(self, connection: Connection) -> bool:
        pool = agent_pool.lock_counter(connection)
        if pool.counter != "moving":
            return True
        agent_pool.remove_forgotten_workers(connection, self._limits.window + self._hold + MOVE_SECONDS)
        if agent_pool.workers_before(connection, pool.epoch):
            if pool.moved_at is not None and pool.now < pool.moved_at + timedelta(seconds=MOVE_SECONDS):
                return False
            times = agent_pool.silent_workers(connection, pool.epoch) * self._most_unwritten
            if times:
                agent_bookings.assume_used(connection, min(self._limits.requests, times), self._hold)
            agent_pool.remove_silent_workers(connection, pool.epoch)
        agent_bookings.refree_all(connection, self._limits)
        agent_pool.set_counter(connection, "postgres", pool.epoch, None)
        return True

    async def _enter_redis(self) -> bool:
        redis, run_id = self._door.limiter, self._door.run_id
        if redis is None:
            return False

        def declare(
            connection: Connection,
        ) -> tuple[int, list[agent_bookings.SeedAgent], list[AgentRow]] | None:
            pool = agent_pool.lock_counter(connection)
            if pool.counter != "postgres" or agent_pool.any_worker_without_redis(connection, 2 * MOVE_SECONDS):
                return None
            seed, agents = agent_bookings.read_seed(connection, self._limits), read_agents(connection)
            agent_pool.set_counter(connection, "redis", pool.epoch + 1, run_id)
            return pool.epoch + 1, seed, agents

        declared = await self._database.transact(declare)
        if declared is None:
            return False
        epoch, seed, agents = declared
        try:
            await redis.seed(epoch, seed, agents)
        except (RedisLost, RedisForgot) as error:
            await self._leave_redis(epoch, str(error))
        else:
            log.info("Redis counts requests, seeded from PostgreSQL", epoch=epoch)
        return True
