"""The web server under load while a crawl runs, beside few and beside a million stored products; and idle streams."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

import aiohttp
import httpx
import psutil
from sqlalchemy import text

from benchmarks.crawl import OURS, crawl_once
from benchmarks.filling import seller_name
from benchmarks.growing import SIZES, growing
from benchmarks.report import Table, Target, p95
from benchmarks.resting import rest
from benchmarks.world import AGENTS, World, register
from mustit_pipeline.access import api_keys
from mustit_pipeline.access.tokens import issue_for_cli
from mustit_pipeline.cli.serve import free_port
from mustit_pipeline.crawling.steering import open_or_join
from mustit_pipeline.domain.access import KeyName, Role, Scope
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.settings import Settings

LONGEST_P95, MOST_GROWTH, MOST_THREADS = 0.100, 1.3, 1
# Below that the machine itself is most of the time.
SHORT_SECONDS = 0.020
TOGETHER = 100
# The peak that a crawl is made for. At full speed it would do the work of hours within the two minutes, and take the
# cores from the server, which is another measurement.
RESULTS_PER_SECOND = 100
COMMAND = Path(sys.executable).parent / "mustit"


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is stored, and how hard is asked."""

    sizes: tuple[int, ...] = (SIZES[0], SIZES[-1])
    sellers: int = 10_000
    pattern: int = 1_000
    clients: int = 200
    seconds: float = 120.0
    crawled: int = 2_000
    streams: int = 2_000
    workers: int = 1
    rest_seconds: float = 900.0
    bodies_every: int = 4


QUICK = Plan((80, 400), 50, 40, clients=10, seconds=4, crawled=40, streams=20, rest_seconds=0, bodies_every=2)


@dataclass(slots=True)
class Load:
    """How long each kind of request took at each size, what was answered wrongly, and what idle streams cost."""

    plan: Plan
    seconds: dict[int, dict[str, list[float]]] = field(default_factory=dict[int, dict[str, list[float]]])
    errors: list[str] = field(default_factory=list[str])
    crawls: dict[int, int] = field(default_factory=dict[int, int])
    threads: tuple[int, int] = (0, 0)
    idle_cpu_share: float = 0.0

    def p95(self, size: int, kind: str) -> float:
        """The time that 95 of 100 requests stayed below."""
        return p95(self.seconds[size][kind])

    def targets(self) -> list[Target]:
        smallest, largest = self.plan.sizes[0], self.plan.sizes[-1]
        kinds = self.seconds[largest]
        return [
            *(Target(f"API, {kind}: p95 in seconds", self.p95(largest, kind), at_most=LONGEST_P95) for kind in kinds),
            *(
                Target(
                    f"API, {kind}: p95 in times of {smallest:,} products",
                    max(SHORT_SECONDS, self.p95(largest, kind)) / max(SHORT_SECONDS, self.p95(smallest, kind)),
                    at_most=MOST_GROWTH,
                )
                for kind in kinds
            ),
            Target("API, answers that were errors", len(self.errors), at_most=0),
            Target(
                f"API, threads more with {self.plan.streams:,} idle streams",
                self.threads[1] - self.threads[0],
                at_most=MOST_THREADS,
            ),
        ]

    def table(self) -> Table:
        title = (
            f"{self.plan.clients} clients, one request a second each, {self.plan.seconds:g} s, {self.plan.workers} "
            f"process(es), while crawls store {RESULTS_PER_SECOND} results a second; {self.plan.streams:,} idle "
            f"streams: {self.threads[1] - self.threads[0]} threads and {100 * self.idle_cpu_share:.0f} % of a core"
        )
        rows = [
            [kind, *(f"{1000 * self.p95(size, kind):.1f}" for size in self.seconds)]
            for kind in self.seconds[self.plan.sizes[-1]]
        ]
        return Table(title, ["p95 in ms", *(f"{size:,} products" for size in self.seconds)], rows)

    def document(self) -> dict[str, object]:
        return {
            "clients": self.plan.clients,
            "p95": {size: {kind: self.p95(size, kind) for kind in kinds} for size, kinds in self.seconds.items()},
            "requests": {size: sum(map(len, kinds.values())) for size, kinds in self.seconds.items()},
            "crawlsMeanwhile": self.crawls,
            "errors": self.errors[:20],
            "idleStreams": {"threads": self.threads, "cpuShare": self.idle_cpu_share},
        }


@dataclass(frozen=True, slots=True)
class _Bench:
    """One database that grows, and what is measured on it."""

    world: World
    database_url: str
    database: Database
    settings: Settings
    load: Load


def run(plan: Plan) -> Load:
    """Fill one database step by step, and ask at each; the idle streams come at the end."""
    load = Load(plan)
    with growing(plan.sellers, plan.sizes[-1] // plan.pattern) as ground:
        bench = _Bench(ground.world, ground.database_url, ground.database, ground.settings, load)
        filler = ground.filler(plan.pattern, plan.bodies_every)
        for size in plan.sizes:
            filler.fill(size)
            rest(bench.database, plan.rest_seconds)
            with serving(bench.settings, plan.workers) as (address, _):
                _ask(bench, size, address)
        with serving(bench.settings, 1) as (address, process):
            _stream(bench, address, process)
    return load


@contextmanager
def serving(settings: Settings, workers: int) -> Generator[tuple[str, psutil.Process]]:
    """A `mustit serve` on the filled database."""
    port = free_port()
    environment = {
        **os.environ,
        "MUSTIT_HOME": str(settings.home),
        "MUSTIT_DATABASE_URL": settings.database_url or "",
        "MUSTIT_DAGSTER_DATABASE_URL": settings.dagster_database_url or "",
        "MUSTIT_TOKEN_KEY": settings.token_key.get_secret_value() if settings.token_key else "",
        "MUSTIT_JWT_SECRET": settings.jwt_secret.get_secret_value() if settings.jwt_secret else "",
        "MUSTIT_REDIS_URL": settings.redis_url or "off",
        "MUSTIT_API_PORT": str(port),
    }
    command = [str(COMMAND), "serve", "--workers", str(workers)]
    # Its log, a line for each request, is written as everywhere else.
    log = settings.home / f"serve-{port}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as lines, subprocess.Popen(command, env=environment, stderr=lines) as process:
        try:
            address = f"http://127.0.0.1:{port}"
            _wait(address)
            yield address, psutil.Process(process.pid)
        finally:
            process.terminate()


def _wait(address: str) -> None:
    for _ in range(600):
        try:
            if httpx.get(f"{address}/health/ready", trust_env=False).is_success:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise RuntimeError("the server was not ready within a minute")


def _headers(bench: _Bench) -> dict[str, str]:
    """An admin's token for all routes but /metrics, which takes a key."""
    token = issue_for_cli(bench.settings.signing_keys(), "benchmark", Role.ADMIN, utc_now(), timedelta(hours=3))
    name = KeyName(f"benchmark {uuid4().hex[:8]}")
    key = api_keys.create(bench.database, name, [Scope.METRICS], timedelta(hours=3))
    return {"Authorization": f"Bearer {token.text}", "X-API-Key": key.text}


def _ask(bench: _Bench, size: int, address: str) -> None:
    ended = threading.Event()
    crawls = threading.Thread(target=_crawl, args=(bench, size, ended))
    crawls.start()
    try:
        paths = _paths(bench.database)
        bench.load.seconds[size] = asyncio.run(_clients(bench.load, address, _headers(bench), paths))
    finally:
        ended.set()
        crawls.join()


def _crawl(bench: _Bench, size: int, ended: threading.Event) -> None:
    """Crawls of new sellers, one after the other, for as long as is asked."""
    load, world = bench.load, bench.world
    while not ended.is_set():
        number = load.crawls.get(size, 0)
        seller_id, products = f"loaded{size}x{number}", load.plan.crawled
        world.add_seller(seller_id, products)
        register(bench.database, seller_id)
        job = world.job(seller_id, bench.database_url, first=True, min_gap_seconds=AGENTS / RESULTS_PER_SECOND)
        crawl_once(world, OURS, job, products)
        load.crawls[size] = number + 1


def _paths(database: Database) -> dict[str, list[str]]:
    """What is asked for, by kind; each kind at several places."""
    with database.reading() as connection:
        query = text("SELECT item_no FROM products WHERE seller_id = :seller AND version > 0 ORDER BY item_no LIMIT 20")
        items: Sequence[int] = connection.execute(query, {"seller": seller_name(0)}).scalars().all()
    sellers = [quote(seller_name(number), safe="") for number in range(5)]
    return {
        "sellers": ["/api/v1/sellers?size=50", "/api/v1/sellers?size=50&page=2", "/api/v1/sellers?q=stored0001"],
        "seller": [f"/api/v1/sellers/{seller}" for seller in sellers],
        "products": [f"/api/v1/products?sellerId={seller}&size=50" for seller in sellers],
        "product": [f"/api/v1/products/{item}?sellerId={sellers[0]}" for item in items],
        "metrics": [f"/api/v1/metrics/crawling?sellerId={seller}" for seller in sellers],
        "changes": ["/api/v1/changes?size=50", f"/api/v1/changes?size=50&sellerId={sellers[0]}"],
        "outbox": [
            "/api/v1/outbox?size=50",
            "/api/v1/outbox?size=50&status=FAILED",
            f"/api/v1/outbox?size=50&sellerId={sellers[0]}",
        ],
        "executions": ["/api/v1/executions?size=20", f"/api/v1/executions?sellerId={sellers[0]}"],
        # No product has this name: the search walks as far as it may.
        "search": [f"/api/v1/products?sellerId={seller}&q=nowhere" for seller in sellers],
        "audit": ["/api/v1/audit?size=50"],
        "prometheus": ["/metrics"],
    }


async def _clients(
    load: Load, address: str, headers: dict[str, str], paths: dict[str, list[str]]
) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = {kind: [] for kind in paths}
    kinds = list(paths)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(address, headers=headers, connector=connector) as session:

        async def client(number: int) -> None:
            # Spread over the second, as people are.
            await asyncio.sleep(number / load.plan.clients)
            begin = time.perf_counter()
            turn = 0
            while time.perf_counter() - begin < load.plan.seconds:
                kind = kinds[(number + turn) % len(kinds)]
                path = paths[kind][(number + turn) // len(kinds) % len(paths[kind])]
                start = time.perf_counter()
                async with session.get(path) as answer:
                    body = await answer.read()
                    if answer.status != 200:
                        load.errors.append(f"{answer.status} {path} {body[:300]!r}")
                taken[kind].append(time.perf_counter() - start)
                turn += 1
                await asyncio.sleep(max(0.0, begin + turn - time.perf_counter()))

        await asyncio.gather(*(client(number) for number in range(load.plan.clients)))
    return taken


def _stream(bench: _Bench, address: str, process: psutil.Process) -> None:
    """Many streams of one crawl in which nothing happens."""
    opened_crawl = open_or_join(bench.database, SellerId(seller_name(0)), triggered_by="benchmark", now=utc_now())
    path = f"/api/v1/executions/{opened_crawl.stored.id}/events"
    asyncio.run(_idle(bench.load, address, _headers(bench), path, process))


async def _idle(load: Load, address: str, headers: dict[str, str], path: str, process: psutil.Process) -> None:
    connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(address, headers=headers, connector=connector, timeout=timeout) as session:
        streams: list[aiohttp.ClientResponse] = []
        before = 0
        while len(streams) < load.plan.streams:
            more = min(TOGETHER, load.plan.streams - len(streams))
            streams += await asyncio.gather(*(session.get(path) for _ in range(more)))
            # The first ones fill the pool of threads that all requests share.
            before = before or process.num_threads()
        load.errors += [f"{stream.status} {path}" for stream in streams if stream.status != 200]
        await asyncio.gather(*(stream.content.readline() for stream in streams))
        times, start = process.cpu_times(), time.perf_counter()
        await asyncio.sleep(10)
        later = process.cpu_times()
        spent = later.user + later.system - times.user - times.system
        load.idle_cpu_share = spent / (time.perf_counter() - start)
        load.threads = (before, process.num_threads())
        for stream in streams:
            stream.close()
