"""The request budget: with more work than budget, how much of what is allowed is used, and is it ever exceeded."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import text

from benchmarks.job import Job
from benchmarks.ours import open_database, settings_of
from benchmarks.report import Table, Target
from benchmarks.world import ROOT, World, opened
from mustit_pipeline import embedded
from mustit_pipeline.crawling.crawl import Crawl
from mustit_pipeline.crawling.steering import open_or_join
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now

AGENTS = 50
REQUESTS = 80
GAP_SECONDS = 0.05
SHARE = 0.99
SELLER = "budget"
# Far enough into the second window's requests that many are in flight.
KILL_AFTER_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """How many worker processes share the agents, and whether Redis is killed under them."""

    name: str
    workers: int
    kills_redis: bool = False


SCENARIOS = (
    Scenario("one worker", 1),
    Scenario("four workers", 4),
    Scenario("four workers, Redis killed and empty", 4, kills_redis=True),
)


@dataclass(frozen=True, slots=True)
class Plan:
    """How long is spent, how much is allowed, and how far into the second window Redis is killed."""

    window: float
    windows: int
    requests: int = REQUESTS
    kill_after: float = KILL_AFTER_SECONDS


# Half a minute in all. In windows of seconds the machine is what is short: how much is used of them says little.
QUICK = Plan(window=3.0, windows=3, requests=6, kill_after=1.5)


@dataclass(frozen=True, slots=True)
class Spending:
    """What the marketplace counted in one scenario."""

    scenario: str
    allowed: int
    used: int
    refused: int
    most_in_window: int
    left_over: int
    hand_overs: int

    @property
    def share(self) -> float:
        """Used of what was allowed."""
        return self.used / self.allowed


@dataclass(frozen=True, slots=True)
class Budget:
    """All scenarios."""

    plan: Plan
    spendings: list[Spending]

    def targets(self) -> list[Target]:
        targets: list[Target] = []
        for spending in self.spendings:
            name = f"budget, {spending.scenario}"
            targets += [
                Target(f"{name}: share used", spending.share, at_least=SHARE),
                Target(f"{name}: answers of 429", spending.refused, at_most=0),
                Target(f"{name}: most in any window", spending.most_in_window, at_most=self.plan.requests),
            ]
        return targets

    def table(self) -> Table:
        plan = self.plan
        title = (
            f"request budget: {AGENTS} agents, {plan.requests} requests in {plan.window:g} s, {plan.windows} windows"
        )
        rows = [
            [
                spending.scenario,
                f"{spending.used:,} of {spending.allowed:,}",
                f"{spending.share:.2%}",
                str(spending.refused),
                str(spending.most_in_window),
                str(spending.hand_overs),
            ]
            for spending in self.spendings
        ]
        return Table(title, ["scenario", "requests", "used", "429", "most in a window", "hand-overs"], rows)

    def document(self) -> dict[str, object]:
        return {
            "window": self.plan.window,
            "windows": self.plan.windows,
            "agents": AGENTS,
            "scenarios": [asdict(spending) | {"share": spending.share} for spending in self.spendings],
        }


def run(plan: Plan, scenarios: Sequence[Scenario] = SCENARIOS) -> Budget:
    """Every scenario on servers of its own."""
    spendings: list[Spending] = []
    for scenario in scenarios:
        limits = {"requests_per_window": plan.requests, "window_seconds": plan.window, "min_gap_seconds": GAP_SECONDS}
        with opened(**limits) as world:
            spendings.append(_spend(world, scenario, plan))
        print(f"budget, {scenario.name}: {spendings[-1].share:.2%}", file=sys.stderr, flush=True)
    return Budget(plan, spendings)


def _spend(world: World, scenario: Scenario, plan: Plan) -> Spending:
    window, per_window = plan.window, AGENTS * plan.requests
    allowed = per_window * plan.windows
    # A window's worth more than the budget: the work must never be what runs out.
    world.add_seller(SELLER, (allowed + per_window) // 2)
    database_url = world.fresh_database()
    world.prepare_ours(database_url, SELLER, AGENTS)
    job = world.job(SELLER, database_url, first=True)
    limits = {
        "requests_per_hour": plan.requests,
        "window_seconds": window,
        "min_request_gap_seconds": GAP_SECONDS,
    }
    workers = [_worker(job, limits) for _ in range(scenario.workers)]
    try:
        for worker in workers:
            _await_ready(worker)
        started = time.monotonic()
        _sweep(job, limits)
        end = started + plan.windows * window
        for worker in workers:
            _tell(worker, f"{end - time.monotonic()}\n")
        if scenario.kills_redis:
            time.sleep(max(0.0, started + window + plan.kill_after - time.monotonic()))
            _kill_redis(world)
        left_over = min(_remaining(worker) for worker in workers)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    if not left_over:
        raise RuntimeError("the work ran out before the budget did")
    hand_overs = _hand_overs(job)
    if scenario.kills_redis and not hand_overs:
        raise RuntimeError("no process noticed that Redis was killed")
    audit = world.market.audit()
    return Spending(
        scenario=scenario.name,
        allowed=allowed,
        used=audit["requests"] - audit["limit429"],
        refused=audit["limit429"],
        most_in_window=audit["maxInWindow"],
        left_over=left_over,
        hand_overs=hand_overs,
    )


def _sweep(job: Job, limits: dict[str, Any]) -> None:
    """The listing, whose requests are part of the budget too."""
    database = open_database(job)
    opened_execution = open_or_join(database, SellerId(job.seller_id), triggered_by="benchmark", now=utc_now())
    Crawl(database, settings_of(job, **limits), opened_execution.stored).sweep(limits["window_seconds"])
    database.close()


def _worker(job: Job, limits: dict[str, Any]) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "benchmarks.budget_worker", json.dumps(asdict(job)), json.dumps(limits)]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _await_ready(worker: "subprocess.Popen[str]") -> None:
    if worker.stdout is None or worker.stdout.readline().strip() != "ready":
        raise RuntimeError("a worker did not start; its reason is above")


def _tell(worker: "subprocess.Popen[str]", line: str) -> None:
    if worker.stdin is not None:
        worker.stdin.write(line)
        worker.stdin.flush()


def _remaining(worker: "subprocess.Popen[str]") -> int:
    lines = worker.stdout.read().splitlines() if worker.stdout is not None else []
    if worker.wait() or not lines:
        raise RuntimeError("a worker failed; its reason is above")
    return int(lines[-1])


def _hand_overs(job: Job) -> int:
    """How often the counting has moved since Redis first took it over."""
    database = open_database(job)
    with database.reading() as connection:
        epoch: int = connection.execute(text("SELECT epoch FROM pool_state")).scalar_one()
    database.close()
    return epoch - 1


def _kill_redis(world: World) -> None:
    """Kill it as kill -9 does; its keeper starts it again, and it has kept nothing."""
    pid = embedded.status(world.home).redis_pid
    if pid is None:
        raise RuntimeError("Redis does not run")
    os.kill(pid, signal.SIGKILL)
