"""Events that wait in PostgreSQL sent to a product server: our relay, pgqueuer and procrastinate side by side."""

import json
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from statistics import median

import httpx

from benchmarks.job import Outcome
from benchmarks.relay_job import RelayJob, body_of
from benchmarks.report import Table, Target, megabytes
from benchmarks.world import ROOT, World, opened

OURS, PGQUEUER, PROCRASTINATE = "ours", "pgqueuer", "procrastinate"
MODULES = {
    OURS: "benchmarks.relay_ours",
    PGQUEUER: "benchmarks.relay_pgqueuer",
    PROCRASTINATE: "benchmarks.relay_procrastinate",
}
IN_FLIGHT = 100
# Of the server's answer, with how many times the better of the others ours promises.
DELAYS = {0: 1.5, 50: 1.0}
LONGEST_SECONDS = 1800


class WrongDelivery(Exception):
    """A contender did not send what it was timed for."""


@dataclass(slots=True)
class Race:
    """Every outcome, by delay and contender, in the order of the rounds."""

    events: int
    rounds: int
    outcomes: dict[int, dict[str, list[Outcome]]] = field(
        default_factory=lambda: {delay: {name: [] for name in MODULES} for delay in DELAYS}
    )

    def rate(self, delay: int, name: str) -> float:
        """The median of events per second."""
        return median(self.events / outcome.seconds for outcome in self.outcomes[delay][name])

    def speed(self, delay: int) -> float:
        """How many times as fast as the better of the others ours is: the median over rounds of each round's ratio."""
        found = self.outcomes[delay]
        rounds = zip(found[OURS], found[PGQUEUER], found[PROCRASTINATE], strict=True)
        return median(min(one.seconds, other.seconds) / ours.seconds for ours, one, other in rounds)

    def targets(self) -> list[Target]:
        """The promised ratios and what was measured."""
        return [
            Target(f"relay, answers after {delay} ms: ours against the better other", self.speed(delay), at_least=least)
            for delay, least in DELAYS.items()
        ]

    def table(self) -> Table:
        """Medians for people."""
        title = (
            f"{self.events:,} waiting events sent, {IN_FLIGHT} in flight, medians of {self.rounds} interleaved rounds"
        )
        rows = [
            [
                f"{delay} ms",
                name,
                f"{self.rate(delay, name):,.0f}",
                f"{median(outcome.seconds for outcome in outcomes):.2f}",
                f"{median(outcome.cpu_seconds for outcome in outcomes):.2f}",
                megabytes(max(outcome.peak_bytes for outcome in outcomes)),
            ]
            for delay, contenders in self.outcomes.items()
            for name, outcomes in contenders.items()
        ]
        return Table(title, ["answer after", "contender", "events/s", "seconds", "CPU s", "peak MB"], rows)

    def document(self) -> dict[str, object]:
        """Everything measured."""
        return {
            "events": self.events,
            "rounds": self.rounds,
            "inFlight": IN_FLIGHT,
            "outcomes": {
                f"{delay} ms": {name: [asdict(outcome) for outcome in outcomes] for name, outcomes in found.items()}
                for delay, found in self.outcomes.items()
            },
        }


def run(events: int, rounds: int) -> Race:
    """Interleaved rounds against one product server; each contender has an empty database each time."""
    race = Race(events, rounds)
    with opened() as world, _product_server() as url:
        for number in range(rounds):
            for delay in DELAYS:
                for name in _turn(number):
                    outcome = send_once(world, url, name, events, delay)
                    race.outcomes[delay][name].append(outcome)
                    print(f"{delay} ms, {name}: {outcome.seconds:.2f} s", file=sys.stderr, flush=True)
    return race


def send_once(world: World, url: str, name: str, events: int, delay_ms: int) -> Outcome:
    """One contender in a process of its own, checked against what the product server received."""
    database_url = world.fresh_database()
    world.settle()
    httpx.post(f"{url}/reset", params={"delay": delay_ms / 1000}).raise_for_status()
    job = RelayJob(
        server_url=url,
        database_url=database_url,
        redis_url=world.servers.redis_url,
        home=str(world.home / "ours"),
        events=events,
        in_flight=IN_FLIGHT,
    )
    outcome = _raced(name, job)
    received = httpx.get(f"{url}/counts").raise_for_status().json()
    expected_bytes = sum(len(body_of(item)) for item in range(1, events + 1))
    if received["events"] != events or received["keys"] != events or received["bodyBytes"] != expected_bytes:
        raise WrongDelivery(f"{name}: {received} instead of {events} events of {expected_bytes} bytes, once each")
    if received["mostInFlight"] > IN_FLIGHT:
        raise WrongDelivery(f"{name}: {received['mostInFlight']} in flight, {IN_FLIGHT} allowed")
    world.drop(database_url)
    return outcome


@contextmanager
def _product_server() -> Generator[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.relay_server"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["url"]
    finally:
        process.stdin.close()
        process.wait(10)
        process.stdout.close()


def _turn(number: int) -> Sequence[str]:
    """Another contender goes first in each round."""
    names = list(MODULES)
    start = number % len(names)
    return [*names[start:], *names[:start]]


def _raced(name: str, job: RelayJob) -> Outcome:
    command = [sys.executable, "-m", MODULES[name], json.dumps(asdict(job))]
    ended = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=False, timeout=LONGEST_SECONDS)
    if ended.returncode:
        raise WrongDelivery(f"{name} ended with {ended.returncode}; its reason is above")
    return Outcome(**json.loads(ended.stdout.splitlines()[-1]))
