"""The pages of the console beside a million stored products: how long the server takes, how heavy they are, and what
open pages cost while nothing moves."""

import asyncio
import re
import time
from dataclasses import dataclass, field
from urllib.parse import quote

import aiohttp
import httpx
import psutil
from sqlalchemy import text

from benchmarks.api import serving
from benchmarks.filling import seller_name
from benchmarks.growing import SIZES, growing
from benchmarks.report import Table, Target, p95
from benchmarks.resting import rest
from mustit_pipeline.access import users
from mustit_pipeline.access.console_sessions import open_session
from mustit_pipeline.catalog.sql.tables import product_change_sets, products
from mustit_pipeline.domain.access import Role, UserName
from mustit_pipeline.domain.values import CrawlingInterval, SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.sellers import registry
from mustit_pipeline.settings import Settings

LONGEST_P95, MOST_BYTES, MOST_CPU = 0.200, 150_000, 0.1
LARGE = "large & many/100%"
ASSET = re.compile(r'(?:href|src)="(/static/[^"#]+)"')


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is stored, and how often each page is asked for."""

    stored: int = SIZES[-1]
    sellers: int = 10_000
    pattern: int = 1_000
    large: int = 100_000
    rounds: int = 100
    streams: int = 100
    idle_seconds: float = 30.0
    rest_seconds: float = 900.0
    bodies_every: int = 4


QUICK = Plan(200, 50, 40, large=120, rounds=3, streams=10, idle_seconds=2, rest_seconds=0, bodies_every=2)


@dataclass(slots=True)
class Console:
    """How long each page took, what it weighs with its assets, and what idle pages cost."""

    plan: Plan
    seconds: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    weights: dict[str, int] = field(default_factory=dict[str, int])
    idle_cpu_share: float = 0.0

    def p95(self, page: str) -> float:
        """The time that 95 of 100 requests stayed below."""
        return p95(self.seconds[page])

    def targets(self) -> list[Target]:
        return [
            *(Target(f"Console, {page}: p95 in seconds", self.p95(page), at_most=LONGEST_P95) for page in self.seconds),
            Target("Console, heaviest page with its assets in bytes", max(self.weights.values()), at_most=MOST_BYTES),
            Target(
                f"Console, cores for {self.plan.streams} open pages in which nothing moves",
                self.idle_cpu_share,
                at_most=MOST_CPU,
            ),
        ]

    def table(self) -> Table:
        title = (
            f"Pages beside {self.plan.stored:,} products of {self.plan.sellers:,} sellers; {self.plan.streams} "
            f"open pages in which nothing moves: {100 * self.idle_cpu_share:.1f} % of a core"
        )
        rows = [[page, f"{1000 * self.p95(page):.1f}", f"{self.weights[page]:,}"] for page in self.seconds]
        return Table(title, ["page", "p95 in ms", "bytes with assets"], rows)

    def document(self) -> dict[str, object]:
        return {
            "stored": self.plan.stored,
            "p95": {page: self.p95(page) for page in self.seconds},
            "bytes": self.weights,
            "idleCpuShare": self.idle_cpu_share,
        }


def run(plan: Plan) -> Console:
    """Fill a database, and look at every page that grows with it."""
    found = Console(plan)
    with growing(plan.sellers, plan.stored // plan.pattern) as ground:
        database, settings = ground.database, ground.settings
        ground.filler(plan.pattern, plan.bodies_every).fill(plan.stored)
        item_no = _make_large(database, plan)
        rest(database, plan.rest_seconds)
        with serving(settings, 1) as (address, process):
            cookies = {"mustit_session": _session(database, settings)}
            with httpx.Client(base_url=address, cookies=cookies, trust_env=False, timeout=60) as client:
                for page, path in _pages(item_no).items():
                    _look(found, client, page, path)
            asyncio.run(_idle(found, address, cookies, process))
    return found


def _session(database: Database, settings: Settings) -> str:
    user = users.add(database, UserName("benchmark"), Role.ADMIN, None)
    return open_session(settings.signing_keys(), user, utc_now()).text


def _make_large(database: Database, plan: Plan) -> int:
    """A seller with many products, which are those of others under its name; returns one of them."""
    registry.register(database, SellerId(LARGE), LARGE, CrawlingInterval.DEFAULT, utc_now())
    copies = min(plan.large, plan.stored) // plan.pattern
    with database.transaction() as connection:
        for table, key in ((products, "product_id"), (product_change_sets, "change_set_id")):
            names = [column.name for column in table.columns if column.computed is None and column.identity is None]
            names = [name for name in names if name != "seq"]
            # The day that the overview adds up is a day in which much has changed.
            given = {
                key: "gen_random_uuid()",
                "seller_id": ":large",
                "detected_at": "now() - random() * interval '1 day'",
            }
            values = ", ".join(given.get(name, name) for name in names)
            query = f"""
                INSERT INTO {table.name} ({", ".join(names)}) SELECT {values} FROM {table.name}
                WHERE seller_id >= :begin AND seller_id < :end
            """
            connection.execute(text(query), {"large": LARGE, "begin": seller_name(0), "end": seller_name(copies)})
        counted = text("UPDATE sellers SET total_product_count = :number WHERE seller_id = :large")
        connection.execute(counted, {"number": copies * plan.pattern, "large": LARGE})
        query = text("SELECT item_no FROM products WHERE seller_id = :large AND version > 0 LIMIT 1")
        return connection.execute(query, {"large": LARGE}).scalar_one()


def _pages(item_no: int) -> dict[str, str]:
    large = quote(LARGE, safe="")
    return {
        "overview": "/",
        "sellers": "/sellers",
        "sellers, last page": "/sellers?page=199",
        "sellers, found by name": "/sellers?q=stored0",
        "seller": f"/sellers/{large}",
        "seller's products": f"/sellers/{large}?show=products",
        "products of a seller": f"/products?seller={large}",
        "changes": "/changes",
        "changes of a type": "/changes?type=PRICE",
        "changes of a seller": f"/changes?seller={large}",
        "events": "/outbox",
        "events of a seller": f"/outbox?seller={seller_name(0)}",
        "crawls": "/executions",
        "product": f"/products/{item_no}?seller={large}",
        "agents": "/agents",
        "held deletions": "/deletions",
    }


def _look(found: Console, client: httpx.Client, page: str, path: str) -> None:
    taken: list[float] = []
    answer = client.get(path)
    for _ in range(found.plan.rounds):
        start = time.perf_counter()
        answer = client.get(path)
        taken.append(time.perf_counter() - start)
        if answer.status_code != 200:
            raise RuntimeError(f"{path} was answered with {answer.status_code}")
    assets = set(ASSET.findall(answer.text))
    found.seconds[page] = taken
    found.weights[page] = len(answer.content) + sum(len(client.get(asset).content) for asset in assets)


async def _idle(found: Console, address: str, cookies: dict[str, str], process: psutil.Process) -> None:
    """Open pages that follow everything, after they have been told the first time."""
    path = "/live?parts=crawls,events,changes,holds,alerts"
    timeout = aiohttp.ClientTimeout(total=None)
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(address, cookies=cookies, cookie_jar=jar, timeout=timeout) as session:
        streams = await asyncio.gather(*(session.get(path) for _ in range(found.plan.streams)))
        await asyncio.gather(*(stream.content.readline() for stream in streams))
        # The first requests of a process cost more than those that follow.
        await asyncio.sleep(1)
        before, start = process.cpu_times(), time.perf_counter()
        await asyncio.sleep(found.plan.idle_seconds)
        after = process.cpu_times()
        found.idle_cpu_share = (after.user + after.system - before.user - before.system) / (time.perf_counter() - start)
        for stream in streams:
            if stream.status != 200:
                raise RuntimeError(f"{path} was answered with {stream.status}")
            stream.close()
