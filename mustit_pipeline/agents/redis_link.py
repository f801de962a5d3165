"""One pipelined connection to Redis: never reconnected silently, because a new server may lack the counts."""

import asyncio
import math
from collections import deque
from hashlib import sha1
from typing import Any, Self, cast

from redis.asyncio import ConnectionPool
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError

from mustit_pipeline.agents.redis_scripts import SCRIPTS

CALL_SECONDS = 0.5
CONNECT_SECONDS = 2.0
# The braces keep all keys in one slot of a Redis cluster.
PREFIX = "mustit:{agents}:"


class RedisLost(Exception):
    """Redis does not answer, answers too slowly, or with an error."""


class RedisForgot(Exception):
    """Redis does not hold the counts of this epoch: it was flushed, restarted or seeded by another worker."""


class RedisDamaged(RedisForgot):
    """Redis holds the epoch but not all of its counts: something was evicted or deleted."""


# One argument of a call: its length and itself.
_BULK = b"$%d\r\n%b\r\n"


def _call_of(script: str) -> bytes:
    parts = (b"EVALSHA", sha1(script.encode(), usedforsecurity=False).hexdigest().encode(), b"1", PREFIX.encode())
    return b"".join(_BULK % (len(part), part) for part in parts)


# The start of every call of a script; packing it each time would cost more than the call itself.
_CALLS = {script: _call_of(script) for script in SCRIPTS}


class RedisLink:
    """Sends calls of many tasks as they come; Redis answers in the same order."""

    def __init__(self, pool: ConnectionPool, connection: AbstractConnection, run_id: str) -> None:
        self._pool = pool
        self._connection = connection
        self.run_id = run_id
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._unsent: list[bytes] = []
        self._work = asyncio.Event()
        self._lost: RedisLost | None = None
        self._tasks = (asyncio.create_task(self._read()), asyncio.create_task(self._write()))

    @classmethod
    async def open(cls, url: str) -> Self:
        """Connect, learn which server this is, and give it the scripts."""
        pool = ConnectionPool.from_url(  # pyright: ignore[reportUnknownMemberType]
            url, protocol=2, socket_timeout=None, socket_connect_timeout=CONNECT_SECONDS
        )
        connection = pool.make_connection()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await connection.connect()
                await connection.send_command("INFO", "server")
                information = cast(bytes, await connection.read_response()).decode()
                for script in SCRIPTS:
                    await connection.send_command("SCRIPT", "LOAD", script)
                    await connection.read_response()
        except (RedisError, OSError, TimeoutError) as error:
            await connection.disconnect(nowait=True)
            raise RedisLost(f"no connection to Redis ({type(error).__name__})") from None
        run_id = next(line.removeprefix("run_id:") for line in information.splitlines() if line.startswith("run_id:"))
        return cls(pool, connection, run_id)

    @property
    def is_open(self) -> bool:
        return self._lost is None

    async def call(self, script: str, *arguments: str | int | float) -> list[Any]:
        """Run a script; any failure but of its counts closes the connection."""
        if self._lost is not None or not self._connection.is_connected:
            raise self._give_up("the connection to Redis is closed")
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        self._unsent += (b"*%d\r\n" % (4 + len(arguments)), _CALLS[script])
        self._unsent += [_BULK % (len(text), text) for text in [str(argument).encode() for argument in arguments]]
        self._work.set()
        try:
            async with asyncio.timeout(CALL_SECONDS):
                reply = await answer
        except TimeoutError:
            raise self._give_up("Redis answers too slowly") from None
        except (RedisError, OSError) as error:
            raise self._give_up(f"Redis failed a call ({type(error).__name__})") from None
        if reply[0] == b"forgot":
            raise RedisForgot("Redis does not hold these counts")
        if reply[0] == b"damaged":
            raise RedisDamaged("Redis has lost a part of its counts")
        return reply

    async def close(self) -> None:
        """Close the connection."""
        self._give_up("closed")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._connection.disconnect(nowait=True)
        await self._pool.aclose()

    async def _write(self) -> None:
        """Send all calls since the last turn of the loop at once."""
        try:
            while self._lost is None:
                await self._work.wait()
                self._work.clear()
                packed, self._unsent = b"".join(self._unsent), []
                if self._connection.is_connected:
                    await self._connection.send_packed_command(packed, check_health=False)
        except (RedisError, OSError) as error:
            self._give_up(f"the connection to Redis broke ({type(error).__name__})")

    async def _read(self) -> None:
        try:
            while True:
                try:
                    reply = cast(Any, await self._connection.read_response(timeout=math.inf))
                    failure = None
                except RedisError as error:
                    if not self._connection.is_connected:
                        raise
                    reply, failure = None, error
                # A cancelled caller's future is still in the queue.
                answer = self._waiting.popleft()
                if answer.done():
                    continue
                if failure is None:
                    answer.set_result(reply)
                else:
                    answer.set_exception(failure)
        except (RedisError, OSError) as error:
            self._give_up(f"the connection to Redis broke ({type(error).__name__})")

    def _give_up(self, why: str) -> RedisLost:
        if self._lost is None:
            self._lost = RedisLost(why)
        while self._waiting:
            answer = self._waiting.popleft()
            if not answer.done():
                answer.set_exception(RedisLost(why))
                answer.exception()
        return RedisLost(why)
