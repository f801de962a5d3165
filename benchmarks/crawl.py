"""The whole crawl of one seller, first and again with 1 % changed: ours, Scrapy and the limit version side by side.

And once more with 1 % changed in what the listing shows: ours under the recrawl policy, the others as before.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median

from benchmarks.job import Job, Outcome
from benchmarks.report import Table, Target, megabytes
from benchmarks.world import AGENTS, PAGE_SIZE, ROOT, World, opened

SELLER = "bench"
CHANGED_SHARE = 0.01
OURS, SCRAPY, LIMIT = "ours", "scrapy", "limit"
MODULES = {OURS: "benchmarks.ours", SCRAPY: "benchmarks.scrapy_project", LIMIT: "benchmarks.limit"}
FIRST, AGAIN, ADAPTIVE = "first crawl", "re-crawl", "re-crawl, ours adaptive"
LONGEST_SECONDS = 3600
TARGETS = {
    (FIRST, SCRAPY): 4.2,
    (AGAIN, SCRAPY): 5.5,
    (FIRST, LIMIT): 0.38,
    (AGAIN, LIMIT): 0.33,
    (ADAPTIVE, LIMIT): 1.0,
}
# Of the requests that fetch everything, under the recrawl policy.
MOST_REQUESTS = 1 / 30


class WrongResult(Exception):
    """A contender did not do the job that it was timed for."""


@dataclass(slots=True)
class Race:
    """Every outcome, by crawl and contender, in the order of the rounds."""

    products: int
    rounds: int
    outcomes: dict[str, dict[str, list[Outcome]]] = field(
        default_factory=lambda: {crawl: {name: [] for name in MODULES} for crawl in (FIRST, AGAIN, ADAPTIVE)}
    )

    def seconds(self, crawl: str, name: str) -> float:
        """The median time."""
        return median(outcome.seconds for outcome in self.outcomes[crawl][name])

    def speed(self, crawl: str, other: str) -> float:
        """How many times as fast as another contender ours is: the median over rounds of each round's own ratio."""
        pairs = zip(self.outcomes[crawl][other], self.outcomes[crawl][OURS], strict=True)
        return median(theirs.seconds / ours.seconds for theirs, ours in pairs)

    def share_of_requests(self) -> float:
        """What ours asks for under the recrawl policy, of what the others do: the most of any round."""
        pairs = zip(self.outcomes[ADAPTIVE][OURS], self.outcomes[ADAPTIVE][LIMIT], strict=True)
        return max(ours.requests / theirs.requests for ours, theirs in pairs)

    def targets(self) -> list[Target]:
        """The promised ratios and what was measured."""
        speeds = [
            Target(f"{crawl}: ours against {other}", self.speed(crawl, other), at_least=least)
            for (crawl, other), least in TARGETS.items()
        ]
        share = Target(f"{ADAPTIVE}: requests, of all", self.share_of_requests(), at_most=MOST_REQUESTS)
        return [*speeds, share]

    def table(self) -> Table:
        """Medians for people."""
        title = f"whole crawl of {self.products:,} products, medians of {self.rounds} interleaved rounds"
        rows = [
            [
                crawl,
                name,
                f"{self.seconds(crawl, name):.2f}",
                f"{self.products / self.seconds(crawl, name):,.0f}",
                f"{median(outcome.requests for outcome in outcomes):,.0f}",
                f"{median(outcome.cpu_seconds for outcome in outcomes):.2f}",
                megabytes(max(outcome.peak_bytes for outcome in outcomes)),
                "" if name == OURS else f"{self.speed(crawl, name):.2f} x",
                ", ".join(f"{stage} {_stage(outcomes, stage):.2f}" for stage in outcomes[0].stages),
            ]
            for crawl, contenders in self.outcomes.items()
            for name, outcomes in contenders.items()
        ]
        heads = ["crawl", "contender", "seconds", "products/s", "requests", "CPU s", "peak MB"]
        heads += ["speed of ours", "stages (s)"]
        return Table(title, heads, rows)

    def document(self) -> dict[str, object]:
        """Everything measured."""
        return {
            "products": self.products,
            "rounds": self.rounds,
            "outcomes": {
                crawl: {name: [_measured(outcome) for outcome in outcomes] for name, outcomes in contenders.items()}
                for crawl, contenders in self.outcomes.items()
            },
        }


def run(products: int, rounds: int) -> Race:
    """Interleaved rounds on one marketplace; each contender starts each round with an empty database."""
    race = Race(products, rounds)
    with opened() as world:
        world.add_seller(SELLER, products)
        for number in range(rounds):
            _round(world, race, _turn(number))
    return race


def crawl_once(world: World, name: str, job: Job, products: int, *, profile: str | None = None) -> Outcome:
    """One contender's crawl in a process of its own, checked against what the marketplace saw."""
    world.settle()
    world.market.reset_audit()
    outcome = _raced(name, job, profile)
    audit = world.market.audit()
    outcome.requests = audit["requests"]
    wanted = 1 + -(-products // PAGE_SIZE) + 2 * products
    statuses = {status for counts in audit["statuses"].values() for status in counts}
    if statuses != {"200"} or (job.recrawl == "everything" and outcome.requests != wanted):
        raise WrongResult(f"{name}: {outcome.requests} requests instead of {wanted}, answered with {statuses}")
    if outcome.products != products:
        raise WrongResult(f"{name}: {outcome.products} complete products instead of {products}")
    return outcome


def _round(world: World, race: Race, names: Sequence[str]) -> None:
    databases = {name: world.fresh_database() for name in names}
    world.prepare_ours(databases[OURS], SELLER, AGENTS)
    for name, database in databases.items():
        job = world.job(SELLER, database, first=True)
        outcome = _noted(race, FIRST, name, crawl_once(world, name, job, race.products))
        if len(set(outcome.created)) != race.products or outcome.changed:
            raise WrongResult(f"{name}: {len(outcome.created)} created and {len(outcome.changed)} changed at first")
    number = max(1, round(race.products * CHANGED_SHARE))
    changes = world.market.random_changes(SELLER, number)
    _crawl_again(world, race, AGAIN, databases, [change.item_no for change in changes])
    _crawl_again(world, race, ADAPTIVE, databases, change_shown(world, SELLER, number))
    for database in databases.values():
        world.drop(database)


def _crawl_again(world: World, race: Race, crawl: str, databases: Mapping[str, str], changed: Sequence[int]) -> None:
    for name, database in databases.items():
        recrawl = "adaptive" if (crawl, name) == (ADAPTIVE, OURS) else "everything"
        job = world.job(SELLER, database, first=False, recrawl=recrawl)
        outcome = _noted(race, crawl, name, crawl_once(world, name, job, race.products))
        if sorted(outcome.changed) != sorted(changed) or outcome.created:
            raise WrongResult(f"{name}: {len(outcome.changed)} products changed instead of the {len(changed)} that did")


def change_shown(world: World, seller_id: str, number: int) -> list[int]:
    """Give so many products, spread over the listing, another name and price; returns their numbers."""
    listed = world.market.products(seller_id)
    chosen = listed[:: max(1, len(listed) // number)][:number]
    for product in chosen:
        price = product["normalPrice"] + 1000
        world.market.set_fields(seller_id, product["itemNo"], name=f"{product['name']} +", normalPrice=price)
    return [product["itemNo"] for product in chosen]


def _turn(number: int) -> list[str]:
    """Another contender goes first in each round."""
    names = list(MODULES)
    start = number % len(names)
    return [*names[start:], *names[:start]]


def _noted(race: Race, crawl: str, name: str, outcome: Outcome) -> Outcome:
    race.outcomes[crawl][name].append(outcome)
    print(f"{crawl}, {name}: {outcome.seconds:.2f} s", file=sys.stderr, flush=True)
    return outcome


def _raced(name: str, job: Job, profile: str | None) -> Outcome:
    module = MODULES[name] if profile is None else "benchmarks.profiling"
    command = [sys.executable, "-m", module, json.dumps(asdict(job)), *([] if profile is None else [profile])]
    ended = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=False, timeout=LONGEST_SECONDS)
    if ended.returncode:
        raise WrongResult(f"{name} ended with {ended.returncode}; its reason is above")
    return Outcome(**json.loads(ended.stdout.splitlines()[-1]))


def _stage(outcomes: list[Outcome], stage: str) -> float:
    return median(outcome.stages[stage] for outcome in outcomes)


def _measured(outcome: Outcome) -> dict[str, object]:
    document: dict[str, object] = asdict(outcome)
    return document | {"created": len(outcome.created), "changed": len(outcome.changed)}
