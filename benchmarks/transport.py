"""The whole first crawl of one seller over both transports: PostgreSQL, and SQS as moto simulates it here."""

import os
import sys
from collections import Counter
from dataclasses import dataclass
from statistics import median
from unittest.mock import patch

from benchmarks.crawl import OURS, crawl_once
from benchmarks.job import Outcome
from benchmarks.ours import settings_of
from benchmarks.report import Table, Target
from benchmarks.simulated_aws import CREDENTIALS, simulated_aws
from benchmarks.world import AGENTS, World, opened
from mustit_pipeline.aws.setup import make_queues

SELLER = "bench"
POSTGRES, SQS = "postgres", "sqs"


@dataclass(frozen=True, slots=True)
class Transports:
    """Every outcome by transport, in the order of the rounds, and the calls of SQS in the last round."""

    products: int
    requests: int
    outcomes: dict[str, list[Outcome]]
    calls: Counter[str]

    def seconds(self, transport: str) -> float:
        """The median time."""
        return median(outcome.seconds for outcome in self.outcomes[transport])

    def targets(self) -> list[Target]:
        """None: moto's speed says nothing of SQS's."""
        return []

    def table(self) -> Table:
        """Medians for people."""
        named = ", ".join(f"{number:,} {name}" for name, number in self.calls.most_common())
        rows = [
            [
                transport,
                f"{self.seconds(transport):.2f}",
                f"{self.products / self.seconds(transport):,.0f}",
                f"{median(outcome.cpu_seconds for outcome in outcomes):.2f}",
                f"{self.requests:,}",
                f"{self.calls.total():,}: {named}" if transport == SQS else "0",
            ]
            for transport, outcomes in self.outcomes.items()
        ]
        heads = ["transport", "seconds", "products/s", "CPU s", "marketplace requests", "calls of AWS"]
        return Table(f"whole crawl of {self.products:,} products over both transports", heads, rows)

    def document(self) -> dict[str, object]:
        """Everything measured."""
        return {
            "products": self.products,
            "requests": self.requests,
            "calls": dict(self.calls),
            "seconds": {name: [one.seconds for one in outcomes] for name, outcomes in self.outcomes.items()},
            "cpuSeconds": {name: [one.cpu_seconds for one in outcomes] for name, outcomes in self.outcomes.items()},
        }


def run(products: int, rounds: int) -> Transports:
    """Interleaved rounds on one marketplace, each crawl in a process and a database of its own."""
    outcomes: dict[str, list[Outcome]] = {POSTGRES: [], SQS: []}
    with opened() as world, simulated_aws() as (endpoint, calls):
        world.add_seller(SELLER, products)
        for _ in range(rounds):
            for transport, outcome in (
                (POSTGRES, _crawl(world, products, {})),
                (SQS, _crawl(world, products, _over_sqs(endpoint), calls)),
            ):
                outcomes[transport].append(outcome)
                print(f"transport, {transport}: {outcome.seconds:.2f} s", file=sys.stderr, flush=True)
        requests = int(world.market.audit()["requests"])
    return Transports(products, requests, outcomes, calls)


def _over_sqs(endpoint: str) -> dict[str, str]:
    return {**CREDENTIALS, "MUSTIT_TASK_TRANSPORT": SQS, "MUSTIT_AWS_ENDPOINT_URL": endpoint}


def _crawl(world: World, products: int, variables: dict[str, str], calls: Counter[str] | None = None) -> Outcome:
    database = world.fresh_database()
    world.prepare_ours(database, SELLER, AGENTS)
    job = world.job(SELLER, database, first=True)
    # The process of the crawl inherits them.
    with patch.dict(os.environ, variables):
        if calls is not None:
            make_queues(settings_of(job))
            calls.clear()
        outcome = crawl_once(world, OURS, job, products)
    world.drop(database)
    return outcome
