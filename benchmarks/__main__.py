"""`python -m benchmarks [part|profile|all]`: runs, prints a table and writes JSON."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks import (
    api,
    bloat,
    budget,
    console,
    crawl,
    growing,
    growth,
    growth_plot,
    lake,
    memory,
    profiling,
    recrawl,
    recrawl_plot,
    relay,
    report,
    sequence,
)
from benchmarks.world import AGENTS, ROOT, opened

QUICK_PRODUCTS = 500
# moto takes a tenth of a second for a batch of ten messages.
TRANSPORT_PRODUCTS = 500


def main() -> int:
    """Exit 0 where every target was met."""
    options = _options()
    if options.part == "profile":
        _profile(_products(options), options.output)
        return 0
    wanted = PARTS if options.part == "all" else {options.part: PARTS[options.part]}
    parts = {name: part(options) for name, part in wanted.items()}
    met = report.show(list(parts.values()))
    report.write(parts, options.output)
    return 0 if met else 1


def _products(options: argparse.Namespace) -> int:
    return min(options.products, QUICK_PRODUCTS) if options.quick else options.products


def _crawl(options: argparse.Namespace) -> report.Part:
    return crawl.run(_products(options), 1 if options.quick else options.rounds)


def _budget(options: argparse.Namespace) -> report.Part:
    return budget.run(budget.QUICK if options.quick else budget.Plan(options.window, options.windows))


def _memory(options: argparse.Namespace) -> report.Part:
    return memory.run(_products(options))


def _growth(options: argparse.Namespace) -> report.Part:
    sizes = tuple(size for size in growing.SIZES if size <= options.stored)
    grown = growth.run(growth.QUICK if options.quick else growth.Plan(sizes))
    growth_plot.draw(grown, options.output.with_name("growth.svg"))
    return grown


def _sequence(options: argparse.Namespace) -> report.Part:
    return sequence.run(sequence.QUICK if options.quick else sequence.Plan())


def _bloat(options: argparse.Namespace) -> report.Part:
    return bloat.run(bloat.QUICK if options.quick else bloat.Plan())


def _lake(options: argparse.Namespace) -> report.Part:
    sizes = tuple(size for size in lake.Plan().sizes if size <= options.stored)
    return lake.run(lake.QUICK if options.quick else lake.Plan(sizes))


def _relay(options: argparse.Namespace) -> report.Part:
    return relay.run(_products(options), 1 if options.quick else options.rounds)


def _api(options: argparse.Namespace) -> report.Part:
    sizes = (api.SIZES[0], max(options.stored, 10 * api.SIZES[0]))
    return api.run(api.QUICK if options.quick else api.Plan(sizes))


def _console(options: argparse.Namespace) -> report.Part:
    return console.run(console.QUICK if options.quick else console.Plan(options.stored))


def _transport(options: argparse.Namespace) -> report.Part:
    # Only here: moto takes seconds to import.
    from benchmarks import transport

    return transport.run(min(_products(options), TRANSPORT_PRODUCTS), 1 if options.quick else options.rounds)


def _recrawl(options: argparse.Namespace) -> report.Part:
    compared = recrawl.run(recrawl.QUICK if options.quick else recrawl.Plan())
    recrawl_plot.draw(compared, options.output.with_name("recrawl.svg"))
    return compared


PARTS: dict[str, Callable[[argparse.Namespace], report.Part]] = {
    "crawl": _crawl,
    "budget": _budget,
    "memory": _memory,
    "growth": _growth,
    "sequence": _sequence,
    "bloat": _bloat,
    "lake": _lake,
    "relay": _relay,
    "api": _api,
    "console": _console,
    "transport": _transport,
    "recrawl": _recrawl,
}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("part", nargs="?", default="all", choices=(*PARTS, "profile", "all"))
    parser.add_argument(
        "--products", type=int, default=5000, help="products of the crawled seller, events of the relay (5000)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds of the crawl and of the relay (3)")
    parser.add_argument("--window", type=float, default=60.0, help="WINDOW_SECONDS of the budget runs (60)")
    parser.add_argument("--windows", type=int, default=3, help="windows of each budget run (3)")
    parser.add_argument("--stored", type=int, default=growing.SIZES[-1], help="the most products stored (1000000)")
    parser.add_argument(
        "--quick", action="store_true", help="500 products or fewer, one round, windows of seconds: shows that it works"
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
