"""What is done to the web server: passwords are guessed, its servers and databases die under load, requests made up."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import aiohttp
import httpx

from mustit_pipeline import embedded
from mustit_pipeline.access import users
from mustit_pipeline.access.tokens import issue_for_cli
from mustit_pipeline.domain.access import FREE_OF_ACCOUNT, Password, Role, UserName
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.settings import Settings
from mustit_pipeline_tests.conftest import free_port
from mustit_pipeline_tests.faults.children import serving
from mustit_pipeline_tests.faults.scenarios import Numbers, Size
from mustit_pipeline_tests.faults.world import World, wait_until
from mustit_pipeline_tests.integration.crawls import crawl, register

ADDRESSES = 20
CLIENTS = 8
SELLER = "럭셔리 샵&co"
_QUOTED = quote(SELLER, safe="")
# Their answers stay the same while nothing is crawled.
PATHS = (
    f"/api/v1/sellers/{_QUOTED}",
    f"/api/v1/products?sellerId={_QUOTED}&size=20",
    f"/api/v1/changes?sellerId={_QUOTED}&size=20",
    f"/api/v1/outbox?sellerId={_QUOTED}&size=20",
    f"/api/v1/metrics/crawling?sellerId={_QUOTED}",
)
GENERATED = Path(__file__).parents[1] / "integration" / "api" / "test_schemathesis.py"


@contextmanager
def _servers(world: World, settings: Settings, number: int) -> Generator[list[str]]:
    ports = [free_port() for _ in range(number)]
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    with (
        serving(world, settings.model_copy(update={"api_port": ports[0]})),
        serving(world, settings.model_copy(update={"api_port": ports[-1]})),
    ):
        for url in urls:
            wait_until(lambda url=url: _is_ready(url), f"{url} is ready")
        yield urls


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health/ready", trust_env=False, timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def logins_are_guessed(world: World, size: Size) -> Numbers:
    """Thousands of guesses from many addresses over two servers, without Redis: a handful is looked at."""
    guesses = size.kills * size.products
    name = UserName("kim")
    users.add(world.database, name, Role.ADMIN, Password("a long enough word", name))
    settings = world.with_settings(redis_url="off", api_behind_proxy="127.0.0.1")
    answers: Counter[int] = Counter()
    started = time.monotonic()
    with _servers(world, settings, 2) as urls:

        def guess(number: int) -> None:
            with httpx.Client(base_url=urls[number % 2], trust_env=False, timeout=60) as client:
                for turn in range(guesses // CLIENTS):
                    address = f"203.0.113.{(number * 7 + turn) % ADDRESSES}"
                    answer = client.post(
                        "/api/v1/auth/login",
                        json={"username": "kim", "password": f"guess {number} {turn}"},
                        headers={"X-Forwarded-For": address},
                    )
                    answers[answer.status_code] += 1

        _together(guess)
    # After the free ones each waits twice as long as the one before, up to a minute.
    seconds = time.monotonic() - started
    looked_at = FREE_OF_ACCOUNT + 1
    wait = 2.0
    while (seconds := seconds - wait) > 0:
        looked_at += 1
        wait = min(60.0, wait * 2)
    assert set(answers) <= {401, 429}, answers
    assert answers[401] <= looked_at + 1, f"{answers[401]} guesses were looked at, not {looked_at}"
    return {"guesses": sum(answers.values()), "looked at": answers[401], "refused unseen": answers[429]}


def web_servers_and_databases_die_under_load(world: World, size: Size) -> Numbers:
    """PostgreSQL and Redis are killed and both servers restarted in turn while 200 clients ask: 503, and recovery."""
    world.market.add_seller(SELLER, size.products)
    register(world.database, SELLER)
    crawl(world.database, world.settings, SELLER)
    with ExitStack() as running:
        fleet = _Fleet(world, running)
        asking = _Asking(world.settings, fleet.urls, 200 if size.kills > 10 else 20)
        with asking:
            for number in range(size.kills):
                status = embedded.status(world.settings.home)
                killed = status.redis_pid if number % 3 == 2 else status.postgres_pid
                assert killed is not None
                os.kill(killed, signal.SIGKILL)
                asking.wait_for_answers()
                fleet.wait_until_ready()
            told_to_wait = asking.answers[503]
            for number in range(2):
                fleet.restart(number)
                asking.wait_for_answers()
    assert not asking.wrong, asking.wrong[:3]
    assert set(asking.answers) <= {200, 503}, asking.answers
    assert asking.answers[503] == told_to_wait, "a rolling restart is no reason to send a client away"
    return {
        "answered": asking.answers[200],
        "told to come back": told_to_wait,
        "kills": size.kills,
        "restarts": 2,
        "asked another server": asking.moved,
    }


class _Fleet:
    """Two servers on ports of their own; each can be restarted on its port."""

    def __init__(self, world: World, running: ExitStack) -> None:
        self._world, self._running = world, running
        self._ports = [free_port() for _ in range(2)]
        self.urls = [f"http://127.0.0.1:{port}" for port in self._ports]
        self._processes = [self._start(port) for port in self._ports]
        self.wait_until_ready()

    def restart(self, number: int) -> None:
        """End one with SIGTERM, as a deployment does, and start it again."""
        self._processes[number].terminate()
        code = self._processes[number].wait(60)
        assert code == 0, f"a server that was told to end left with {code}"
        self._processes[number] = self._start(self._ports[number])
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        for url in self.urls:
            wait_until(lambda url=url: _is_ready(url), f"{url} is ready")

    def _start(self, port: int) -> "subprocess.Popen[bytes]":
        settings = self._world.settings.model_copy(update={"api_port": port})
        return self._running.enter_context(serving(self._world, settings))


class _Asking:
    """Clients with one request a second each; as behind a load balancer, a server that is gone is left out."""

    def __init__(self, settings: Settings, urls: Sequence[str], clients: int) -> None:
        token = issue_for_cli(settings.signing_keys(), "test", Role.VIEWER, utc_now(), timedelta(hours=1)).text
        self._headers = {"Authorization": f"Bearer {token}"}
        self._urls, self._clients = urls, clients
        self.answers: Counter[int] = Counter()
        self.wrong: list[str] = []
        self.moved = 0
        with httpx.Client(base_url=urls[0], headers=self._headers, trust_env=False, timeout=30) as client:
            self._right = {path: client.get(path).raise_for_status().text for path in PATHS}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._all()))

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def wait_for_answers(self) -> None:
        """Until requests are answered again, several of each path."""
        before = self.answers[200]
        wait_until(lambda: self.answers[200] > before + 2 * len(PATHS), "requests are answered")

    async def _all(self) -> None:
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=30)
        async with aiohttp.ClientSession(headers=self._headers, connector=connector, timeout=timeout) as session:
            await asyncio.gather(*(self._client(session, number) for number in range(self._clients)))

    async def _client(self, session: aiohttp.ClientSession, number: int) -> None:
        await asyncio.sleep(number / self._clients)
        turn = number
        while not self._ended.is_set():
            path = PATHS[turn % len(PATHS)]
            started = time.monotonic()
            for url in (self._urls[number % 2], self._urls[1 - number % 2]):
                try:
                    async with session.get(url + path) as answer:
                        self._judge(path, answer.status, answer.headers, await answer.text())
                    break
                except aiohttp.ClientConnectionError:
                    self.moved += 1
            else:
                self.wrong.append(f"no server answered {path}")
            turn += 1
            await asyncio.sleep(max(0.0, started + 1 - time.monotonic()))

    def _judge(self, path: str, status: int, headers: Mapping[str, str], text: str) -> None:
        self.answers[status] += 1
        if status == 503 and "Retry-After" not in headers:
            self.wrong.append("503 without Retry-After")
        if status == 200 and text != self._right[path]:
            self.wrong.append(f"{path}: {text[:500]}")


def generated_requests_meet_no_error(world: World, size: Size) -> Numbers:
    """Schemathesis with many examples of each route, as a stranger, a viewer, an admin and an API key."""
    examples = size.products // 6
    with tempfile.TemporaryDirectory(prefix="mustit-") as folder:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", str(GENERATED), "-q", "-p", "no:cacheprovider", f"--basetemp={folder}/t"],
            env=os.environ | {"MUSTIT_TEST_API_EXAMPLES": str(examples)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stdout[-3000:]
    return {"examples of each route": examples, "kinds of rights": 4}


def _together(work: Callable[[int], None]) -> None:
    failures: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise AssertionError(f"{len(failures)} clients failed") from failures[0]


WEB_SCENARIOS: tuple[Callable[[World, Size], Numbers], ...] = (
    logins_are_guessed,
    web_servers_and_databases_die_under_load,
    generated_requests_meet_no_error,
)
