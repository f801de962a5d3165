"""What is done to the web server: passwords are guessed, and its servers and databases die under load."""

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta

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
from mustit_pipeline_tests.integration.crawls import register

ADDRESSES = 20
CLIENTS = 8
SELLER = "럭셔리 샵&co"


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
    """PostgreSQL and Redis are killed while two servers are asked: 503 meanwhile, and recovery."""
    register(world.database, SELLER)
    token = issue_for_cli(world.settings.signing_keys(), "test", Role.VIEWER, utc_now(), timedelta(hours=1)).text
    headers = {"Authorization": f"Bearer {token}"}
    answers: Counter[int] = Counter()
    wrong: list[str] = []
    ended = threading.Event()
    with _servers(world, world.settings, 2) as urls:

        def ask(number: int) -> None:
            with httpx.Client(base_url=urls[number % 2], headers=headers, trust_env=False, timeout=30) as client:
                while not ended.is_set():
                    answer = client.get("/api/v1/sellers", params={"q": "샵"})
                    answers[answer.status_code] += 1
                    if answer.status_code == 503 and "retry-after" not in answer.headers:
                        wrong.append("503 without Retry-After")
                    if answer.status_code == 200 and answer.json()["content"][0]["sellerId"] != SELLER:
                        wrong.append(answer.text)
                    time.sleep(0.01)

        asking = threading.Thread(target=_together, args=(ask,))
        asking.start()
        try:
            for number in range(size.kills):
                status = embedded.status(world.settings.home)
                killed = status.redis_pid if number % 3 == 2 else status.postgres_pid
                assert killed is not None
                before = answers[200]
                os.kill(killed, signal.SIGKILL)
                wait_until(lambda before=before: answers[200] > before + 2 * CLIENTS, "requests are answered again")
                wait_until(lambda: all(_is_ready(url) for url in urls), "both servers are ready again")
        finally:
            ended.set()
            asking.join()
    assert not wrong, wrong[:3]
    assert set(answers) <= {200, 503}, answers
    return {"answered": answers[200], "told to come back": answers[503], "kills": size.kills}


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
)
