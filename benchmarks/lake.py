"""The lake with many products stored: time and peak memory of a day, written by the job in a process of its own.

On a path, and on S3 as moto simulates it. At the end a process that writes
the largest day again is killed in the middle.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch
from zoneinfo import ZoneInfo

from benchmarks.filling import Filler, register_sellers
from benchmarks.job import Stopwatch
from benchmarks.ours import crawl_seller, settings_for, settings_of
from benchmarks.report import Table, Target, megabytes
from benchmarks.world import AGENTS, connected, opened
from mustit_pipeline.aws.clients import aws_client
from mustit_pipeline.catalog.sql.tables import product_change_sets, products
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.lake.columns import library
from mustit_pipeline.lake.export import CATALOG
from mustit_pipeline.lake.place import day_folder, lake_of
from mustit_pipeline.monitoring.metrics import SEOUL
from mustit_pipeline.settings import Settings
from mustit_pipeline.settings.whole import PREFIX

PATTERN = "pattern"
CRAWLS, CHANGED = 2, 0.02
MOST_MEGABYTES = 300
PATH, S3 = "path", "S3"
BUCKET = "lake"
GIVEN = ("home", "database_url", "dagster_database_url", "lake_uri", "aws_endpoint_url")
PATIENCE_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Plan:
    """How many products are stored, how many a seller has, and which days are written."""

    sizes: tuple[int, ...] = (100_000, 1_000_000)
    pattern: int = 1_000
    # Yesterday, when all is stored; and a past day, in the middle of what is stored.
    days_ago: tuple[int, ...] = (1, 15)
    # Off where a second must be enough: moto takes longer to import, and a hundred products are written too fast to
    # kill anything in the middle.
    whole: bool = True


QUICK = Plan((100,), 20, (1,), whole=False)


@dataclass(frozen=True, slots=True)
class Day:
    """What the process that wrote a day says of an asset, and its peak memory."""

    where: str
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

    days: dict[int, list[Day]] = field(default_factory=dict[int, list[Day]])
    fill_seconds: dict[int, float] = field(default_factory=dict[int, float])
    # By place, files of the largest day that were other ones after a process was killed while it wrote the day anew.
    harmed: dict[str, int] = field(default_factory=dict[str, int])

    def targets(self) -> list[Target]:
        largest = self.days[max(self.days)]
        checks = [passed for days in self.days.values() for day in days for passed in day.checks]
        lost = sum(size - _largest(days, where).rows for size, days in self.days.items() for where in _places(days))
        peak = max(day.peak_bytes for day in largest) / 1024 / 1024
        return [
            Target(f"lake, peak MB at {max(self.days):,} products", peak, at_most=MOST_MEGABYTES),
            Target("lake, checks that failed", checks.count(False), at_most=0),
            Target("lake, products that are not in the catalogue", lost, at_most=0),
            *(
                Target(f"lake on {where}, files that a killed process has harmed", harmed, at_most=0)
                for where, harmed in self.harmed.items()
            ),
        ]

    def table(self) -> Table:
        rows = [
            [
                f"{size:,}",
                day.where,
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
        heads = ["products", "on", "written", "rows", "seconds", "MB of files", "files", "peak MB of the run"]
        return Table("a day of the lake", heads, rows)

    def document(self) -> dict[str, object]:
        return {
            str(size): {"fillSeconds": self.fill_seconds[size], "days": [vars_of(day) for day in days]}
            for size, days in self.days.items()
        }


def vars_of(day: Day) -> dict[str, object]:
    """A day as JSON."""
    return {name: getattr(day, name) for name in Day.__slots__}


def _places(days: list[Day]) -> list[str]:
    return list(dict.fromkeys(day.where for day in days))


def _largest(days: list[Day], where: str) -> Day:
    """Yesterday's catalogue, the first that is written."""
    return next(day for day in days if day.where == where)


def run(plan: Plan) -> LakeRun:
    """Fill one database step by step, and write the days at each."""
    found = LakeRun()
    with opened() as world, ExitStack() as stack:
        url = world.fresh_database()
        world.prepare_ours(url, PATTERN, AGENTS)
        settings = settings_for(world.home / "ours", url, "off")
        places = {PATH: settings.model_copy(update={"lake_uri": str(world.home / "lake")})}
        if plan.whole:
            places[S3] = stack.enter_context(_on_s3(settings))
        with connected(url) as database:
            register_sellers(database, plan.sizes[-1] // plan.pattern, 0, utc_now())
            world.add_seller(PATTERN, plan.pattern)
            crawling = settings_of(world.job(PATTERN, url, first=True))
            for number in range(CRAWLS):
                if number:
                    world.market.random_changes(PATTERN, max(1, round(plan.pattern * CHANGED)))
                crawl_seller(database, crawling, SellerId(PATTERN), Stopwatch())
            # What was crawled here is of today, and so of no day that is written.
            filler = Filler(database, PATTERN, plan.pattern, 1, only=(products, product_change_sets))
            for size in plan.sizes:
                found.fill_seconds[size] = filler.fill(size)
                world.settle()
                found.days[size] = [
                    day for where, put in places.items() for ago in plan.days_ago for day in _write(where, put, ago)
                ]
                print(f"lake, {size:,} products: {found.days[size]}", file=sys.stderr, flush=True)
            if plan.whole:
                found.harmed.update({where: _kill(put, plan.days_ago[0]) for where, put in places.items()})
    return found


@contextmanager
def _on_s3(settings: Settings) -> Generator[Settings]:
    from benchmarks.simulated_aws import CREDENTIALS, REGION, simulated_aws

    # The processes that write inherit them.
    with patch.dict(os.environ, CREDENTIALS), simulated_aws() as (endpoint, _):
        put = settings.model_copy(update={"lake_uri": f"s3://{BUCKET}/lake", "aws_endpoint_url": endpoint})
        aws_client(put, "s3").create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
        yield put


def _write(where: str, settings: Settings, days_ago: int) -> list[Day]:
    with _writer(settings, days_ago) as writing:
        told, _ = writing.communicate()
    if writing.returncode:
        raise RuntimeError(f"The process that writes ended with {writing.returncode}")
    return [Day(where=where, **day) for day in json.loads(told.splitlines()[-1])]


def _kill(settings: Settings, days_ago: int) -> int:
    """Kill a process that has written half of a day anew; says how many files are not as before."""
    before, until = _files(settings, days_ago), time.monotonic() + PATIENCE_SECONDS
    with _writer(settings, days_ago) as writing:
        while _being_made(settings) < len(before) / 2:
            if writing.poll() is not None or time.monotonic() > until:
                raise RuntimeError("The process that writes has ended, or never came to the middle")
            time.sleep(0.05)
        writing.send_signal(signal.SIGKILL)
    return len(before.items() ^ _files(settings, days_ago).items())


def _writer(settings: Settings, days_ago: int) -> subprocess.Popen[str]:
    given = {name: value for name in GIVEN if (value := getattr(settings, name)) is not None}
    secrets = {name: getattr(settings, name).get_secret_value() for name in ("token_key", "jwt_secret")}
    variables = {f"{PREFIX}{name.upper()}": str(value) for name, value in (given | secrets).items()}
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.lake_worker", _day(days_ago).isoformat()],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **variables, "DAGSTER_DISABLE_TELEMETRY": "yes"},
    )


def _day(days_ago: int) -> date:
    return utc_now().astimezone(ZoneInfo(SEOUL)).date() - timedelta(days=days_ago)


def _files(settings: Settings, days_ago: int) -> Mapping[str, tuple[Any, ...]]:
    """The files of a day's catalogue, each with its size and time."""
    place = lake_of(settings)
    folder = f"{place.root}/{day_folder(CATALOG, _day(days_ago))}"
    listed = place.filesystem.get_file_info(library("pyarrow.fs").FileSelector(folder, recursive=True))
    return {one.path: (one.size, one.mtime_ns) for one in listed if one.path.endswith(".parquet")}


def _being_made(settings: Settings) -> int:
    """How many files readers do not see yet."""
    if settings.aws_endpoint_url is None:
        return len(list((Path(str(settings.lake_uri)) / ".making").rglob("*.parquet")))
    pages = aws_client(settings, "s3").get_paginator("list_multipart_uploads").paginate(Bucket=BUCKET)
    return sum(len(page.get("Uploads", [])) for page in pages)
