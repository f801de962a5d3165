"""The recrawl policy against others in virtual time: what each makes of the same requests in the same worlds."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from statistics import fmean
from typing import NamedTuple

from benchmarks.recrawl_policies import (
    Adaptive,
    BackOff,
    Everything,
    FreeOracle,
    ListingOnly,
    Oracle,
    Policy,
    Proportional,
    Told,
    Uniform,
)
from benchmarks.recrawl_world import KINDS, OTHERS, STEP, USUAL, Crawler, Measured, Nature, World
from benchmarks.report import Table, Target

OURS, UNIFORM, ORACLE = "ours", "uniform", "oracle"
POLICIES: dict[str, type[Policy]] = {
    OURS: Adaptive,
    "everything every 24 h": Everything,
    UNIFORM: Uniform,
    "proportional": Proportional,
    "back-off": BackOff,
    "listing only": ListingOnly,
    ORACLE: Oracle,
    "oracle without promise": FreeOracle,
}
OTHER_POLICIES = [name for name in POLICIES if name != OURS and not name.startswith(ORACLE)]

LEAST_OF_ORACLE = 0.95
LEAST_OF_UNIFORM = 0.98
MOST_TOLD_WRONG = 0.1
# Before that day the age is told from what is believed of any seller.
TOLD_FROM_DAY = 10


class Budget(NamedTuple):
    """Requests per product and day, and the promise in hours."""

    requests: float
    max_age: float

    @property
    def name(self) -> str:
        days = self.max_age / 24.0
        return f"{self.requests:g} a day, {f'{days:g} days' if days > 1 else '24 h'}"

    @property
    def can_keep(self) -> bool:
        """Whether the requests are enough to fetch every source in time."""
        return KINDS * 24.0 / self.max_age <= self.requests


BUDGETS = (Budget(4.8, 24.0), Budget(2.0, 168.0), Budget(0.5, 168.0), Budget(0.2, 504.0), Budget(0.5, 24.0))
# Where there is a request for each change, ours has to be the freshest, and to find at once what the listing shows.
LEADING = BUDGETS[:3]


@dataclass(frozen=True, slots=True)
class Plan:
    """How many worlds of each kind, and how large they are."""

    usual: Nature = USUAL
    seeds: int = 5
    others: tuple[Nature, ...] = OTHERS
    other_seeds: int = 2


_SMALL = replace(USUAL, products=200, sellers=4, days=4)
QUICK = Plan(_SMALL, 1, (replace(_SMALL, name="listing lies", shown=(0.0, 0.0), false_rate=1.0 / 24),), 1)


@dataclass(slots=True)
class Recrawl:
    """What every policy came to with every budget, in usual worlds and in others."""

    plan: Plan
    usual: dict[Budget, dict[str, list[Measured]]] = field(default_factory=dict[Budget, dict[str, list[Measured]]])
    others: dict[str, dict[Budget, dict[str, list[Measured]]]] = field(
        default_factory=dict[str, dict[Budget, dict[str, list[Measured]]]]
    )
    # Of ours, day by day: the age that was told, and the oldest one on that day.
    told: dict[Budget, list[list[tuple[Told, float]]]] = field(
        default_factory=dict[Budget, list[list[tuple[Told, float]]]]
    )

    def mean(self, budget: Budget, policy: str) -> Measured:
        """Over the worlds."""
        return _mean(self.usual[budget][policy])

    def targets(self) -> list[Target]:
        return [*self._fresh(), *self._promised(), *self._elsewhere()]

    def _fresh(self) -> Iterable[Target]:
        for budget in self.usual:
            ours = self.mean(budget, OURS)
            if budget in LEADING:
                best = max(self.mean(budget, name).freshness for name in OTHER_POLICIES)
                yield Target(f"{budget.name}: freshness, of the best other", ours.freshness / best, at_least=1.0)
                name = f"{budget.name}: median hours until a shown change is found, of those between looks"
                yield Target(name, ours.shown_p50 / ours.look_hours, at_most=1.0)
            of_oracle = ours.freshness / self.mean(budget, ORACLE).freshness
            yield Target(f"{budget.name}: freshness, of the oracle's", of_oracle, at_least=LEAST_OF_ORACLE)

    def _promised(self) -> Iterable[Target]:
        for budget, worlds in self.usual.items():
            if budget.can_keep:
                oldest = max(each.oldest_age for each in worlds[OURS])
                yield Target(f"{budget.name}: oldest age, of the promise", oldest / budget.max_age, at_most=1.0)
            elif wrong := self.told_wrong(budget):
                yield Target(f"{budget.name}: told age, wrong by", max(wrong), at_most=MOST_TOLD_WRONG)

    def told_wrong(self, budget: Budget) -> list[float]:
        """For each world, how far the oldest age was from the one that was told on that day, on average."""
        days = [[each for each in world if each[0].at >= TOLD_FROM_DAY * 24.0] for world in self.told[budget]]
        return [fmean(abs(oldest / told.kept_age - 1.0) for told, oldest in world) for world in days if world]

    def _elsewhere(self) -> Iterable[Target]:
        for world, budgets in self.others.items():
            for budget, policies in budgets.items():
                ratio = _mean(policies[OURS]).freshness / _mean(policies[UNIFORM]).freshness
                yield Target(f"{world}, {budget.name}: of uniform", ratio, at_least=LEAST_OF_UNIFORM)

    def table(self) -> Table:
        nature = self.plan.usual
        title = (
            f"{nature.products:,} products of {nature.sellers} sellers for {nature.days} days of virtual time, "
            f"means of {self.plan.seeds} worlds (hours)"
        )
        heads = ["budget, promise", "policy", "fresh", "harmonic staleness", "found p50", "p95", "shown p50"]
        heads += ["oldest", "requests a day", "per change", "between looks"]
        rows = [
            [budget.name, name, *_cells(self.mean(budget, name))]
            for budget, policies in self.usual.items()
            for name in policies
        ]
        return Table(title, heads, rows)

    def document(self) -> dict[str, object]:
        return {
            "plan": asdict(self.plan),
            "usual": _documented(self.usual),
            "others": {world: _documented(budgets) for world, budgets in self.others.items()},
            "told": {
                budget.name: [[{**asdict(told), "oldest": oldest} for told, oldest in world] for world in worlds]
                for budget, worlds in self.told.items()
            },
        }


def run(plan: Plan) -> Recrawl:
    """Every policy in the same worlds, and ours beside uniform in the others."""
    recrawl = Recrawl(plan)
    worlds = [World(plan.usual, seed) for seed in range(1, plan.seeds + 1)]
    for budget in BUDGETS:
        recrawl.usual[budget] = {name: [] for name in POLICIES}
        recrawl.told[budget] = []
        for world in worlds:
            for name, policy in POLICIES.items():
                done, crawler = _crawled(policy, world, budget)
                recrawl.usual[budget][name].append(crawler.measured())
                if isinstance(done, Adaptive):
                    recrawl.told[budget].append([(told, crawler.oldest_on_day(told.at)) for told in done.told])
    for nature in plan.others:
        worlds = [World(nature, seed) for seed in range(1, plan.other_seeds + 1)]
        recrawl.others[nature.name] = {
            budget: {
                name: [_crawled(POLICIES[name], world, budget)[1].measured() for world in worlds]
                for name in (OURS, UNIFORM)
            }
            for budget in BUDGETS
            if budget.can_keep
        }
    return recrawl


def _crawled(policy: type[Policy], world: World, budget: Budget) -> tuple[Policy, Crawler]:
    """The first crawl has taken as long as its requests take, so that ages differ from the start."""
    crawler = Crawler(world, budget.requests, min(budget.max_age, KINDS * 24.0 / budget.requests))
    acting = policy(crawler, budget.max_age)
    for _ in range(int(world.hours / STEP)):
        crawler.advance()
        acting.act()
        crawler.measure()
    return acting, crawler


def _mean(measured: Sequence[Measured]) -> Measured:
    return Measured(**{each.name: fmean(getattr(one, each.name) for one in measured) for each in fields(Measured)})


def _cells(mean: Measured) -> list[str]:
    return [
        f"{mean.freshness:.4f}",
        f"{mean.harmonic_staleness:.4f}",
        f"{mean.delay_p50:.1f}",
        f"{mean.delay_p95:.0f}",
        f"{mean.shown_p50:.1f}",
        f"{mean.oldest_age:.0f}",
        f"{mean.requests_each_day:.2f}",
        f"{mean.requests_per_change:.1f}",
        f"{mean.look_hours:.1f}" if mean.look_hours else "",
    ]


def _documented(budgets: dict[Budget, dict[str, list[Measured]]]) -> dict[str, object]:
    return {
        budget.name: {name: [asdict(each) for each in worlds] for name, worlds in policies.items()}
        for budget, policies in budgets.items()
    }
