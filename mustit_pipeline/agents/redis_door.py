"""This process's connection to Redis: opened in the background, with a longer pause each time it breaks."""

import asyncio
import time

from mustit_pipeline.agents.redis_limiter import RedisLimiter
from mustit_pipeline.agents.redis_link import RedisLink, RedisLost
from mustit_pipeline.agents.sql.agent_bookings import AgentLimits

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
CALM_SECONDS = 60.0


class RedisDoor:
    """Holds at most one connection; a broken one is replaced, never reused."""

    def __init__(self, url: str | None, limits: AgentLimits) -> None:
        self._url = url
        self._limits = limits
        self._link: RedisLink | None = None
        self._limiter: RedisLimiter | None = None
        self._opening: asyncio.Task[RedisLink] | None = None
        self._old: set[asyncio.Task[None]] = set()
        self._pause = FIRST_PAUSE
        self._next_try = self._opened = float("-inf")

    @property
    def is_open(self) -> bool:
        return self._link is not None and self._link.is_open

    @property
    def run_id(self) -> str | None:
        return None if self._link is None else self._link.run_id

    @property
    def limiter(self) -> RedisLimiter | None:
        """The limiter of the connection, None while it is broken."""
        return self._limiter if self.is_open else None

    def connect_if_due(self) -> bool:
        """Start connecting in the background if that is due; returns whether Redis is connected now."""
        self._take_opened()
        if not self.is_open and self._url is not None and self._opening is None and time.monotonic() > self._next_try:
            self.drop_if_broken()
            self._opening = asyncio.create_task(RedisLink.open(self._url))
        return self.is_open

    async def first_try(self) -> None:
        """Try to connect to Redis and wait for the result."""
        if not self.connect_if_due() and self._opening is not None:
            await asyncio.wait([self._opening])
            self._take_opened()

    async def reach(self, run_id: str | None) -> bool:
        """Whether this process is connected to the server with that run id."""
        if self.is_open:
            return self.run_id == run_id
        if self._opening is None and time.monotonic() < self._next_try:
            return False
        await self.first_try()
        return self.is_open and self.run_id == run_id

    def drop_if_broken(self) -> None:
        """Drop a broken connection, and wait longer before the next one if this one was short."""
        if self._link is None or self._link.is_open:
            return
        lasted = time.monotonic() - self._opened
        self._wait_longer(FIRST_PAUSE if lasted > CALM_SECONDS else self._pause)
        self._put_away(self._link)
        self._link = self._limiter = None

    async def close(self) -> None:
        """Close all connections."""
        if self._opening is not None:
            await asyncio.wait([self._opening])
            self._take_opened()
        if self._link is not None:
            self._put_away(self._link)
        self._link = self._limiter = None
        await asyncio.gather(*self._old)

    def _take_opened(self) -> None:
        if self._opening is None or not self._opening.done():
            return
        opening, self._opening = self._opening, None
        try:
            self._link = opening.result()
        except RedisLost:
            self._wait_longer(self._pause)
            return
        self._limiter = RedisLimiter(self._link, self._limits)
        self._opened = time.monotonic()

    def _wait_longer(self, pause: float) -> None:
        self._next_try = time.monotonic() + pause
        self._pause = min(LONGEST_PAUSE, 2 * pause)

    def _put_away(self, link: RedisLink) -> None:
        task = asyncio.create_task(link.close())
        self._old.add(task)
        task.add_done_callback(self._old.discard)
