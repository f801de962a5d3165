"""`python -m benchmarks [crawl|budget|memory|relay|profile|all]`: runs, prints a table and writes JSON."""

import argparse
import sys
from pathlib import Path

from benchmarks import budget, crawl, memory, profiling, relay, report
from benchmarks.world import AGENTS, ROOT, opened

PARTS = ("crawl", "budget", "memory", "relay")
QUICK_PRODUCTS = 500


def main() -> int:
    """Exit 0 where every target was met."""
    options = _options()
    products = min(options.products, QUICK_PRODUCTS) if options.quick else options.products
    if options.part == "profile":
        _profile(products, options.output)
        return 0
    parts: dict[str, report.Part] = {}
    for part in PARTS if options.part == "all" else (options.part,):
        if part == "crawl":
            parts[part] = crawl.run(products, 1 if options.quick else options.rounds)
        elif part == "budget":
            plan = budget.QUICK if options.quick else budget.Plan(options.window, options.windows)
            parts[part] = budget.run(plan)
        elif part == "relay":
            parts[part] = relay.run(products, 1 if options.quick else options.rounds)
        else:
            parts[part] = memory.run(products)
    met = report.show(list(parts.values()))
    report.write(parts, options.output)
    return 0 if met else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("part", nargs="?", default="all", choices=(*PARTS, "profile", "all"))
    parser.add_argument(
        "--products", type=int, default=5000, help="products of the crawled seller, events of the relay (5000)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds of the crawl and of the relay (3)")
    parser.add_argument("--window", type=float, default=60.0, help="WINDOW_SECONDS of the budget runs (60)")
    parser.add_argument("--windows", type=int, default=3, help="windows of each budget run (3)")
    parser.add_argument(
        "--quick", action="store_true", help="500 products, one round, windows of seconds: shows that it works"
    )
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "bench.json", help="where the JSON goes")
    return parser.parse_args()


def _profile(products: int, output: Path) -> None:
    output.parent.mkdir(parents=True, exist_ok=True)
    target = output.with_suffix(".profile")
    with opened() as world:
        world.add_seller(crawl.SELLER, products)
        database = world.fresh_database()
        world.prepare_ours(database, crawl.SELLER, AGENTS)
        for first in (True, False):
            job = world.job(crawl.SELLER, database, first=first)
            outcome = crawl.crawl_once(world, crawl.OURS, job, products, profile=str(target))
            print(f"\n{'first crawl' if first else 're-crawl'}: {outcome.seconds:.2f} s, {outcome.stages}")
            profiling.show(target)


if __name__ == "__main__":
    sys.exit(main())
