"""Sellers crawled one after the other into one database, with statistics as autovacuum leaves them."""

import sys
from dataclasses import dataclass, field
from statistics import median

from benchmarks.crawl import OURS, crawl_once
from benchmarks.job import Outcome
from benchmarks.report import Table, Target
from benchmarks.world import AGENTS, connected, opened, register

MOST = 1.3


@dataclass(frozen=True, slots=True)
class Plan:
    """How many sellers, and how large each of them is."""

    sellers: int = 20
    products: int = 10_000


QUICK = Plan(4, 100)


@dataclass(slots=True)
class Sequence:
    """First crawls in the order in which they were made."""

    plan: Plan
    outcomes: list[Outcome] = field(default_factory=list[Outcome])

    @property
    def crawls(self) -> list[float]:
        """How long each took as a whole."""
        return [outcome.seconds for outcome in self.outcomes]

    @property
    def processing(self) -> list[float]:
        """And its processing alone."""
        return [outcome.stages["absorb"] + outcome.stages["publish"] for outcome in self.outcomes]

    def targets(self) -> list[Target]:
        named = {"slowest crawl": self.crawls, "slowest processing": self.processing}
        return [
            Target(f"{name} of {len(taken)} sellers, of the median", max(taken) / median(taken), at_most=MOST)
            for name, taken in named.items()
        ]

    def table(self) -> Table:
        title = f"{self.plan.sellers} sellers of {self.plan.products:,} products, one after the other (seconds)"
        stages = list(self.outcomes[0].stages)
        rows = [
            [
                f"{number * self.plan.products:,}",
                f"{outcome.seconds:.2f}",
                *(f"{outcome.stages[stage]:.2f}" for stage in stages),
                f"{outcome.seconds / median(self.crawls):.2f} x",
                f"{processing / median(self.processing):.2f} x",
            ]
            for number, (outcome, processing) in enumerate(zip(self.outcomes, self.processing, strict=True))
        ]
        return Table(title, ["stored before", "crawl", *stages, "crawl / median", "processing / median"], rows)

    def document(self) -> dict[str, object]:
        return {
            "products": self.plan.products,
            "crawls": [{"seconds": outcome.seconds, "stages": outcome.stages} for outcome in self.outcomes],
        }


def run(plan: Plan) -> Sequence:
    """Crawl every seller once, each in a process of its own, without a pause in between."""
    sequence = Sequence(plan)
    with opened() as world:
        url = world.fresh_database()
        world.prepare_ours(url, _name(0), AGENTS)
        for number in range(plan.sellers):
            world.add_seller(_name(number), plan.products)
            if number:
                with connected(url) as database:
                    register(database, _name(number))
            outcome = crawl_once(world, OURS, world.job(_name(number), url, first=True), plan.products)
            sequence.outcomes.append(outcome)
            stored = number * plan.products
            print(f"{stored:,} stored before: {outcome.seconds:.2f} s {outcome.stages}", file=sys.stderr, flush=True)
    return sequence


def _name(number: int) -> str:
    return f"seller{number:02}"
