"""The limiter on PostgreSQL: slower, and always available."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import uuid4

from mustit_pipeline.agents.limiter import FreeIn, Slot
from mustit_pipeline.agents.sql import agent_bookings
from mustit_pipeline.agents.sql.agent_bookings import AgentLimits, BookedAgent, BookingRecord
from mustit_pipeline.agents.sql.agents import AgentRow
from mustit_pipeline.foundation.database import Database


def _moment(now: float | None) -> datetime | None:
    return None if now is None else datetime.fromtimestamp(now, UTC)


class PostgresLimiter:
    """Counts in the bookings table, on PostgreSQL's clock."""

    def __init__(self, database: Database, limits: AgentLimits) -> None:
        self._database = database
        self._limits = limits

    async def acquire(self, epoch: int, hold: float, now: float | None = None) -> Slot | FreeIn:
        booking_id, booked = uuid4(), time.monotonic()
        found = await self._database.transact(
            lambda connection: agent_bookings.book(
                connection, booking_id, self._limits, hold=hold, epoch=epoch, now=_moment(now)
            )
        )
        if isinstance(found, BookedAgent):
            return Slot(booking_id, found.agent_id, found.token_no, booked, booked + hold)
        return FreeIn(found)

    async def settle(self, epoch: int, slot: Slot, now: float | None = None) -> None:
        answered = BookingRecord(
            slot.booking_id, slot.agent_id, 0.0, 0.0, answered_ago=0.0, throttled=False, fresh=False
        )
        await self._database.transact(
            lambda connection: agent_bookings.record(connection, [answered], self._limits, _moment(now))
        )

    async def withdraw(self, epoch: int, slot: Slot, pause: float, now: float | None = None) -> None:
        await self._database.transact(
            lambda connection: agent_bookings.withdraw(
                connection, slot.booking_id, slot.agent_id, self._limits, pause=pause, now=_moment(now)
            )
        )

    async def publish(self, epoch: int, agents: Sequence[AgentRow], now: float | None = None) -> None:
        """Nothing to do: booking reads the agents' rows."""
