"""The lake with many products stored: time and peak memory of a day, written by the job in a process of its own."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import timedelta
from zoneinfo import ZoneInfo

from benchmarks.filling import Filler, register_sellers
from benchmarks.job import Stopwatch
from benchmarks.ours import crawl_seller, settings_for, settings_of
from benchmarks.report import Table, Target, megabytes
from benchmarks.world import AGENTS, World, connected, opened
from mustit_pipeline.catalog.sql.tables import product_change_sets, products
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.monitoring.metrics import SEOUL
from mustit_pipeline.settings.whole import PREFIX

PATTERN = "pattern"
CRAWLS, CHANGED = 2, 0.02
MOST_MEGABYTES = 300


@dataclass(frozen=True, slots=True)
class Plan:
    """How many products are stored, how many a seller has, and which days are written."""

    sizes: tuple[int, ...] = (100_000, 1_000_000)
    pattern: int = 1_000
    # Yesterday, when all is stored; and a past day, in the middle of what is stored.
    days_ago: tuple[int, ...] = (1, 15)


QUICK = Plan((100,), 20, (1,))


@dataclass(frozen=True, slots=True)
class Day:
    """What the process that wrote a day says of an asset, and its peak memory."""

    day: str
    asset: str
    seconds: float
    rows: int
    files: int
    bytes: int
    checks: list[bool]
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class LakeRun:
    """Days by the number of stored products."""

    days: dict[int, list[Day]]
    fill_seconds: dict[int, float]

    def targets(self) -> list[Target]:
        largest = self.days[max(self.days)]
        checks = [passed for days in self.days.values() for day in days for passed in day.checks]
        # Yesterday's catalogue is the first of them.
        lost = sum(size - days[0].rows for size, days in self.days.items())
        peak = max(day.peak_bytes for day in largest) / 1024 / 1024
        return [
            Target(f"lake, peak MB at {max(self.days):,} products", peak, at_most=MOST_MEGABYTES),
            Target("lake, checks that failed", checks.count(False), at_most=0),
            Target("lake, products that are not in the catalogue", lost, at_most=0),
        ]

    def table(self) -> Table:
        rows = [
            [
                f"{size:,}",
                f"{day.asset} of {day.day}",
                f"{day.rows:,}",
                f"{day.seconds:.1f}",
                megabytes(day.bytes),
                str(day.files),
                megabytes(day.peak_bytes),
            ]
            for size, days in self.days.items()
            for day in days
        ]
        heads = ["products", "written", "rows", "seconds", "MB of files", "files", "peak MB of the run"]
        return Table("a day of the lake", heads, rows)

    def document(self) -> dict[str, object]:
        return {
            str(size): {"fillSeconds": self.fill_seconds[size], "days": [vars_of(day) for day in days]}
            for size, days in self.days.items()
        }


def vars_of(day: Day) -> dict[str, object]:
    """A day as JSON."""
    return {name: getattr(day, name) for name in Day.__slots__}


def run(plan: Plan) -> LakeRun:
    """Fill one database step by step, and write yesterday at each."""
    found = LakeRun({}, {})
    with opened() as world:
        url = world.fresh_database()
        world.prepare_ours(url, PATTERN, AGENTS)
        with connected(url) as database:
            register_sellers(database, plan.sizes[-1] // plan.pattern, 0, utc_now())
            world.add_seller(PATTERN, plan.pattern)
            settings = settings_of(world.job(PATTERN, url, first=True))
            for number in range(CRAWLS):
                if number:
                    world.market.random_changes(PATTERN, max(1, round(plan.pattern * CHANGED)))
                crawl_seller(database, settings, SellerId(PATTERN), Stopwatch())
            # What was crawled here is of today, and so of no day that is written.
            filler = Filler(database, PATTERN, plan.pattern, 1, only=(products, product_change_sets))
            for size in plan.sizes:
                found.fill_seconds[size] = filler.fill(size)
                world.settle()
                found.days[size] = [day for ago in plan.days_ago for day in _write(world, url, ago)]
                print(f"lake, {size:,} products: {found.days[size]}", file=sys.stderr, flush=True)
    return found


def _write(world: World, database_url: str, days_ago: int) -> list[Day]:
    settings = settings_for(world.home / "ours", database_url, "off")
    given = {name: getattr(settings, name) for name in ("home", "database_url", "dagster_database_url")}
    secrets = {name: getattr(settings, name).get_secret_value() for name in ("token_key", "jwt_secret")}
    variables = {f"{PREFIX}{name.upper()}": str(value) for name, value in (given | secrets).items()}
    day = utc_now().astimezone(ZoneInfo(SEOUL)).date() - timedelta(days=days_ago)
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks.lake_worker", day.isoformat()],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, **variables, "DAGSTER_DISABLE_TELEMETRY": "yes"},
    )
    return [Day(**day) for day in json.loads(ended.stdout.splitlines()[-1])]
