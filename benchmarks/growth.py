"""What one seller's crawl, the relay, the checks and the commands cost while everything else that is stored grows."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

from sqlalchemy import text

from benchmarks import growth_operations
from benchmarks.crawl import CHANGED_SHARE, OURS, crawl_once
from benchmarks.filling import seller_name
from benchmarks.growing import SIZES, growing
from benchmarks.growth_operations import Ground, keep
from benchmarks.job import Outcome
from benchmarks.report import Table, Target
from benchmarks.resting import rest
from benchmarks.world import World, register
from mustit_pipeline.delivery.relay import relay
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.settings import Settings

# Crawls and relay are compared with those into a database where nothing is stored; the rest needs something to look at.
EMPTY = 0
MOST = 1.3
# What takes less than this moves by milliseconds for reasons of its own: so many of them are no growth.
SHORT_SECONDS, ALLOWED_SECONDS = 0.020, 0.005
# The recrawl policy's part of an hour, with everything stored.
RECRAWL_SECONDS = 1.0
# An operation is repeated until this much time is spent on it, but at least three times.
ENOUGH_SECONDS, LEAST_REPEATS = 15.0, 3
NIGHT_BEFORE, NIGHT = "maintenance, nothing to remove", "maintenance, one seller's repeated bodies"


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is stored, and how often each thing is measured."""

    sizes: tuple[int, ...] = SIZES
    sellers: int = 10_000
    pattern: int = 1_000
    measured: int = 5_000
    rounds: int = 5
    repeats: int = 9
    # How long autovacuum is waited for, so that it does not compete with what is timed.
    rest_seconds: float = 900.0
    # Every so manieth copy keeps its bodies: enough of them to be many, few enough for a disk.
    bodies_every: int = 4


QUICK = Plan((80, 160, 400), sellers=50, pattern=40, measured=60, rounds=1, repeats=1, rest_seconds=0, bodies_every=2)


@dataclass(slots=True)
class Growth:
    """Every time taken, by operation and number of stored products."""

    plan: Plan
    seconds: dict[str, dict[int, list[float]]] = field(default_factory=dict[str, dict[int, list[float]]])
    # The rules of the hourly checks one by one; judged together, as one operation.
    rules: dict[str, dict[int, list[float]]] = field(default_factory=dict[str, dict[int, list[float]]])
    stored: dict[int, dict[str, float]] = field(default_factory=dict[int, dict[str, float]])

    def note(self, operation: str, size: int, seconds: float) -> None:
        """One more measurement."""
        self.seconds.setdefault(operation, {}).setdefault(size, []).append(seconds)

    def usual(self, operation: str, size: int) -> float:
        """The median time."""
        return median(self.seconds[operation][size])

    def ratio(self, operation: str, size: int) -> float:
        """How many times as long as with the least stored."""
        return self.usual(operation, size) / self._usual_times(operation)[0]

    def is_short(self, operation: str) -> bool:
        """Whether it is judged with a few milliseconds of allowance."""
        return max(self._usual_times(operation)) < SHORT_SECONDS

    def judged(self, operation: str) -> float:
        """The slowest size in times of the least stored, less what a short operation is allowed.

        The slowest and not the largest: a bad plan strikes at any size.
        """
        least, *others = self._usual_times(operation)
        slowest = max(others)
        return max(0.0, slowest - ALLOWED_SECONDS) / least if self.is_short(operation) else slowest / least

    def _usual_times(self, operation: str) -> list[float]:
        return [median(taken) for taken in self.seconds[operation].values()]

    def targets(self) -> list[Target]:
        allowance = f" ({ALLOWED_SECONDS * 1000:g} ms allowed)"
        seconds = [
            Target(f"seconds, {one}", max(self._usual_times(one)), at_most=RECRAWL_SECONDS)
            for one in growth_operations.RECRAWL
            if one in self.seconds
        ]
        return seconds + [
            Target(
                f"growth, {operation}{allowance if self.is_short(operation) else ''}",
                self.judged(operation),
                at_most=MOST,
            )
            for operation in self.seconds
        ]

    def table(self) -> Table:
        sizes = self.plan.sizes
        title = (
            f"seconds with {' / '.join(f'{size:,}' for size in sizes)} products and ten times as many tasks stored; "
            f"below {SHORT_SECONDS * 1000:g} ms, {ALLOWED_SECONDS * 1000:g} ms are allowed"
        )
        rows = [
            [
                operation,
                f"{self.usual(operation, EMPTY):.4g}" if EMPTY in self.seconds[operation] else "",
                *(f"{self.usual(operation, size):.4g}" for size in sizes),
                *(f"{self.ratio(operation, size):.2f} x" for size in sizes),
                f"{self.judged(operation):.2f} x{' (short)' if self.is_short(operation) else ''}",
            ]
            for operation in self.seconds
        ]
        heads = [
            "operation",
            "empty",
            *(f"{size:,}" for size in sizes),
            *(f"× at {size:,}" for size in sizes),
            "judged",
        ]
        return Table(title, heads, rows)

    def document(self) -> dict[str, object]:
        return {
            "sizes": list(self.plan.sizes),
            "stored": self.stored,
            "seconds": self.seconds,
            "rules": self.rules,
            "ratios": {one: [self.ratio(one, size) for size in self.plan.sizes] for one in self.seconds},
        }


@dataclass(frozen=True, slots=True)
class _Bench:
    """One database that grows, and everything that works on it."""

    world: World
    plan: Plan
    database_url: str
    database: Database
    settings: Settings
    growth: Growth

    def timed(self, operation: str, size: int, work: Callable[[], object]) -> object:
        start = time.perf_counter()
        result = work()
        self.growth.note(operation, size, time.perf_counter() - start)
        return result


def run(plan: Plan, look: Callable[[Database], None] = lambda _: None) -> Growth:
    """Fill one database step by step, and measure everything at each; who wants to may look into it before."""
    growth = Growth(plan)
    with growing(plan.sellers, plan.sizes[-1] // plan.pattern) as ground:
        bench = _Bench(ground.world, plan, ground.database_url, ground.database, ground.settings, growth)
        _measure_empty(bench)
        filler = ground.filler(plan.pattern, plan.bodies_every)
        for size in plan.sizes:
            growth.stored[size] = {"fill_seconds": filler.fill(size)} | rest(bench.database, plan.rest_seconds)
            print(f"{size:,} products: {growth.stored[size]}", file=sys.stderr, flush=True)
            look(bench.database)
            _measure(bench, size)
    return growth


def _measure(bench: _Bench, size: int) -> None:
    crawled = _crawl_all(bench, size)
    with bench.database.reading() as connection:
        query = text("SELECT item_no FROM products WHERE seller_id = :seller AND version > 0 LIMIT 1")
        item_no = connection.execute(query, {"seller": seller_name(0)}).scalar_one()
    ground = Ground(bench.database, bench.settings, seller_name(0), item_no, crawled[0])
    _repeat(bench, bench.growth.seconds, size, growth_operations.operations(ground))
    _repeat(bench, bench.growth.rules, size, growth_operations.criteria(ground))
    # The first examines what was filled in.
    keep(bench.database, bench.settings)
    for _ in range(bench.plan.repeats):
        bench.timed(NIGHT_BEFORE, size, lambda: keep(bench.database, bench.settings))
    for seller_id in crawled:
        _age(bench, seller_id)
        # So many rows are written anew by the benchmark alone.
        rest(bench.database, bench.plan.rest_seconds)
        bench.timed(NIGHT, size, lambda: _keep_less(bench))


def _measure_empty(bench: _Bench) -> None:
    for seller_id in _crawl_all(bench, EMPTY):
        _age(bench, seller_id)
        _keep_less(bench)


def _crawl_all(bench: _Bench, size: int) -> list[str]:
    crawled = [f"new{size}x{number}" for number in range(bench.plan.rounds)]
    for seller_id in crawled:
        _crawl(bench, size, seller_id)
    # With limits wide open, crawls of minutes have booked what a pool books in days.
    with bench.database.transaction() as connection:
        connection.execute(text("TRUNCATE agent_bookings"))
    return crawled


def _keep_less(bench: _Bench) -> None:
    """A maintenance with work: both calls of each product were repeated, but for those that had changed."""
    removed = keep(bench.database, bench.settings)
    if removed < bench.plan.measured:
        raise RuntimeError(f"maintenance removed {removed} bodies")


def _crawl(bench: _Bench, size: int, seller_id: str) -> None:
    """A new seller's first crawl, its events sent, and a re-crawl."""
    products = bench.plan.measured
    bench.world.add_seller(seller_id, products)
    register(bench.database, seller_id)
    first = crawl_once(bench.world, OURS, bench.world.job(seller_id, bench.database_url, first=True), products)
    _note(bench, size, "first crawl", first)
    report = bench.timed(f"relay of {products:,} events", size, lambda: relay(bench.database, bench.settings))
    if getattr(report, "sent", 0) != products:
        raise RuntimeError(f"the relay sent {report}")
    bench.world.market.random_changes(seller_id, max(1, round(products * CHANGED_SHARE)))
    again = crawl_once(bench.world, OURS, bench.world.job(seller_id, bench.database_url, first=False), products)
    _note(bench, size, "re-crawl", again)
    relay(bench.database, bench.settings)


def _note(bench: _Bench, size: int, crawl: str, outcome: Outcome) -> None:
    print(f"{crawl} with {size:,} products stored: {outcome.seconds:.2f} s", file=sys.stderr, flush=True)
    bench.growth.note(crawl, size, outcome.seconds)
    # How much is left to be absorbed after the fetching is chance: it counts as processing alone.
    for stage in ("sweep", "fetch", "publish"):
        bench.growth.note(f"{crawl}: {stage}", size, outcome.stages[stage])
    bench.growth.note(f"{crawl}: processing", size, outcome.stages["absorb"] + outcome.stages["publish"])


def _repeat(
    bench: _Bench, noted: dict[str, dict[int, list[float]]], size: int, operations: dict[str, Callable[[], object]]
) -> None:
    """Rounds of all operations, so that what slows the machine down meets each of them; the first only warms caches."""
    for operation in operations.values():
        operation()
    for turn in range(bench.plan.repeats):
        for name, operation in operations.items():
            taken = noted.setdefault(name, {}).setdefault(size, [])
            if turn >= LEAST_REPEATS and sum(taken) > ENOUGH_SECONDS:
                continue
            start = time.perf_counter()
            operation()
            taken.append(time.perf_counter() - start)


def _age(bench: _Bench, seller_id: str) -> None:
    """Let a measured seller's day be over: the next size's checks do not see it, and its repeated bodies can go."""
    days = bench.settings.raw_unchanged_days + 1
    ages = {
        "crawling_schedule_executions": ("created_at", "started_at", "ended_at", "updated_at"),
        "product_raw_data": ("fetched_at", "processed_at"),
        "product_change_sets": ("detected_at",),
        "product_outbox": ("created_at", "occurred_at", "next_attempt_at", "completed_at"),
    }
    with bench.database.transaction() as connection:
        for table, columns in ages.items():
            moved = ", ".join(f"{column} = {column} - make_interval(days => :days)" for column in columns)
            query = text(f"UPDATE {table} SET {moved} WHERE seller_id = :seller_id")
            connection.execute(query, {"days": round(days), "seller_id": seller_id})
