"""Servers for the pool's tests: PostgreSQL, a Redis that can be killed, and a marketplace that counts arrivals."""

import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import redis
from aiohttp import web
from sqlalchemy import make_url, text

from mustit_pipeline import embedded
from mustit_pipeline.agents import roster
from mustit_pipeline.embedded.binaries import redis_programs
from mustit_pipeline.foundation.database import Database, make_engine
from mustit_pipeline.settings import Settings
from mustit_pipeline_tests.clusters import attach_migrated

POOL_TABLES = "user_agents, agent_limits, agent_bookings, pool_workers"


@contextmanager
def migrated_database() -> Iterator[Database]:
    """A database of our own with the whole schema."""
    # Not in pytest's folder: another session of the same user closes it to the account that runs the server.
    with TemporaryDirectory(prefix="mustit-agents-") as folder:
        home = Path(folder) / "home"
        servers = attach_migrated(home, redis=False)
        database = Database(make_engine(make_url(servers.database_url)))
        try:
            yield database
        finally:
            database.close()
            embedded.stop(home)


def settings_of(**values: Any) -> Settings:
    """Settings with these values, and otherwise the defaults."""
    return Settings(**values)


def empty_pool(database: Database, agents: int) -> None:
    """As after installation, with so many agents."""
    with database.transaction() as connection:
        connection.execute(text(f"TRUNCATE {POOL_TABLES}"))
        connection.execute(text("DELETE FROM pool_state"))
        connection.execute(text("INSERT INTO pool_state (pool_id, counter) VALUES (1, 'postgres')"))
        roster.load(connection, [f"agent-{number:03}" for number in range(agents)])


class RedisServer:
    """A real redis-server on a socket, which can be killed, stalled and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "redis.sock"
        self.url = f"unix://{self.socket}?db=0"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        programs = redis_programs()
        assert programs is not None, "the tests need a redis-server"
        command = [programs.program("redis-server"), "--port", "0", "--unixsocket", str(self.socket)]
        self._process = subprocess.Popen(
            [*command, "--appendonly", "no", "--save", "", "--dbfilename", "dump.rdb"],
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 20
        while not self._answers():
            assert time.monotonic() < deadline, "redis-server did not start"
            time.sleep(0.02)

    def kill(self) -> None:
        """Kill it, stalled or not."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def stall(self) -> None:
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def _answers(self) -> bool:
        try:
            return bool(self.client().ping())
        except redis.ConnectionError:
            return False

    def client(self) -> redis.Redis:
        return redis.Redis.from_url(self.url)


Answer = Callable[[web.Request], web.Response | None]


@dataclass
class Marketplace:
    """Answers over HTTP and writes down when each agent's requests arrived."""

    token_seconds: int = 7200
    on_token: Answer = lambda _: None
    on_request: Answer = lambda _: None
    arrivals: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    tokens: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    url: str = ""

    async def __aenter__(self) -> Self:
        application = web.Application()
        application.router.add_get("/", self._token)
        application.router.add_get("/{path:.*}", self._request)
        self._runner = web.AppRunner(application)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _token(self, request: web.Request) -> web.Response:
        agent = request.headers["User-Agent"]
        self.tokens[agent].append(time.monotonic())
        answer = self.on_token(request)
        if answer is None:
            answer = web.Response(text="<html></html>")
            answer.set_cookie("token", f"secret-{agent}-{len(self.tokens[agent])}", max_age=self.token_seconds)
        return answer

    async def _request(self, request: web.Request) -> web.Response:
        self.arrivals[request.headers["User-Agent"]].append(time.monotonic())
        return self.on_request(request) or web.json_response([])


def most_in_a_window(arrivals: list[float], window: float) -> int:
    """The most arrivals that any window holds, wherever it starts."""
    ordered = sorted(arrivals)
    first = most = 0
    for last, moment in enumerate(ordered):
        while moment - ordered[first] >= window:
            first += 1
        most = max(most, last - first + 1)
    return most


def smallest_gap(arrivals: list[float]) -> float:
    """The shortest time between two arrivals."""
    ordered = sorted(arrivals)
    return min((after - before for before, after in pairwise(ordered)), default=float("inf"))
