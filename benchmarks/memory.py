"""Peak memory of ours: ten times the products must not need much more of it."""

import sys
from dataclasses import dataclass

from benchmarks.crawl import OURS, crawl_once
from benchmarks.job import Outcome
from benchmarks.report import Table, Target, megabytes
from benchmarks.world import AGENTS, opened

TIMES = 10
MOST = 1.3


@dataclass(frozen=True, slots=True)
class Memory:
    """Two first crawls, the second ten times as large."""

    outcomes: dict[int, Outcome]

    @property
    def ratio(self) -> float:
        """Peak memory of the large crawl in peaks of the small one."""
        small, large = (self.outcomes[products].peak_bytes for products in sorted(self.outcomes))
        return large / small

    def targets(self) -> list[Target]:
        small, large = sorted(self.outcomes)
        return [Target(f"peak memory, {large:,} against {small:,} products", self.ratio, at_most=MOST)]

    def table(self) -> Table:
        rows = [
            [f"{products:,}", f"{outcome.seconds:.1f}", megabytes(outcome.peak_bytes)]
            for products, outcome in self.outcomes.items()
        ]
        return Table("memory of ours, first crawl", ["products", "seconds", "peak MB"], rows)

    def document(self) -> dict[str, object]:
        return {
            "ratio": self.ratio,
            "crawls": {
                products: {"seconds": outcome.seconds, "peak_bytes": outcome.peak_bytes, "stages": outcome.stages}
                for products, outcome in self.outcomes.items()
            },
        }


def run(products: int) -> Memory:
    """Crawl a seller and one ten times as large, each in a process and a database of its own."""
    outcomes: dict[int, Outcome] = {}
    with opened() as world:
        for count in (products, products * TIMES):
            seller_id = f"bench{count}"
            world.add_seller(seller_id, count)
            database = world.fresh_database()
            world.prepare_ours(database, seller_id, AGENTS)
            outcomes[count] = crawl_once(world, OURS, world.job(seller_id, database, first=True), count)
            world.drop(database)
            peak = megabytes(outcomes[count].peak_bytes)
            print(f"memory, {count} products: {peak} MB", file=sys.stderr, flush=True)
    return Memory(outcomes)
