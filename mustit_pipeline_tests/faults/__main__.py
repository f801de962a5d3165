"""`make chaos`: the long fault-injection suite; prints a table and writes build/chaos.json."""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mustit_pipeline_tests.faults.aws_scenarios import AWS_SCENARIOS
from mustit_pipeline_tests.faults.backfill_scenarios import BACKFILL_SCENARIOS
from mustit_pipeline_tests.faults.catalog_scenarios import CATALOG_SCENARIOS
from mustit_pipeline_tests.faults.celery_scenarios import CELERY_SCENARIOS
from mustit_pipeline_tests.faults.delivery_scenarios import DELIVERY_SCENARIOS
from mustit_pipeline_tests.faults.engine_scenarios import ENGINE_SCENARIOS
from mustit_pipeline_tests.faults.many_sellers_scenarios import MANY_SELLERS_SCENARIOS
from mustit_pipeline_tests.faults.recrawl_scenarios import RECRAWL_SCENARIOS
from mustit_pipeline_tests.faults.scenarios import LONG, QUICK, Numbers, Size
from mustit_pipeline_tests.faults.scenarios import SCENARIOS as PIPELINE_SCENARIOS
from mustit_pipeline_tests.faults.throttling_scenarios import THROTTLING_SCENARIOS
from mustit_pipeline_tests.faults.web_scenarios import WEB_SCENARIOS
from mustit_pipeline_tests.faults.world import World, fresh_world

Scenario = Callable[[World, Size], Numbers]
SCENARIOS: tuple[Scenario, ...] = (
    *ENGINE_SCENARIOS,
    *THROTTLING_SCENARIOS,
    *AWS_SCENARIOS,
    *CATALOG_SCENARIOS,
    *PIPELINE_SCENARIOS,
    *DELIVERY_SCENARIOS,
    *CELERY_SCENARIOS,
    *MANY_SELLERS_SCENARIOS,
    *BACKFILL_SCENARIOS,
    *WEB_SCENARIOS,
    *RECRAWL_SCENARIOS,
)
INTERRUPTED = 130


def main(
    scenarios: Sequence[Scenario] = SCENARIOS,
    arguments: Sequence[str] | None = None,
    make_world: Callable[[], AbstractContextManager[World]] = fresh_world,
) -> int:
    parser = argparse.ArgumentParser(prog="python -m mustit_pipeline_tests.faults", description=__doc__)
    names = [scenario.__name__ for scenario in scenarios]
    known = f"only these (default: all): {', '.join(names)}"
    parser.add_argument("scenario", nargs="*", choices=[*names, []], metavar="NAME", help=known)
    parser.add_argument("--quick", action="store_true", help="the short versions")
    parser.add_argument("--output", type=Path, default=Path("build/chaos.json"))
    options = parser.parse_args(arguments)
    chosen = [one for one in scenarios if not options.scenario or one.__name__ in options.scenario]
    console = Console()
    results: list[dict[str, Any]] = []
    code = 0
    try:
        for number, scenario in enumerate(chosen, start=1):
            console.print(f"{number}/{len(chosen)} {scenario.__name__.replace('_', ' ')} …", highlight=False)
            results.append(_play(scenario, QUICK if options.quick else LONG, make_world))
            console.print(f"  {_verdict(results[-1])} after {results[-1]['seconds']} s", highlight=False)
            # After each: a suite of many minutes that is stopped keeps what it has shown so far.
            options.output.parent.mkdir(parents=True, exist_ok=True)
            options.output.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n")
    except KeyboardInterrupt:
        code = INTERRUPTED
    console.print(_table(results))
    if results:
        console.print(f"written to {options.output}", highlight=False)
    return code or int(not all(result["passed"] for result in results))


def _play(scenario: Scenario, size: Size, make_world: Callable[[], AbstractContextManager[World]]) -> dict[str, Any]:
    """What became of a scenario; whatever breaks in it is its own end, not the suite's."""
    started = time.monotonic()
    result: dict[str, Any] = {"scenario": scenario.__name__, "passed": True}
    try:
        with make_world() as world:
            result |= {"numbers": scenario(world, size)}
    except AssertionError as error:
        result |= {"passed": False, "reason": str(error)}
    except Exception as error:
        result |= {"passed": False, "reason": f"{type(error).__name__}: {error}"}
    return result | {"seconds": round(time.monotonic() - started, 1)}


def _verdict(result: dict[str, Any]) -> str:
    return "[green]holds[/]" if result["passed"] else "[red]broken[/]"


def _table(results: Sequence[dict[str, Any]]) -> Table:
    table = Table("scenario", "", "numbers", "s", title="faults", title_justify="left")
    for result in results:
        numbers = ", ".join(f"{name} {number}" for name, number in result.get("numbers", {}).items())
        told = numbers if result["passed"] else escape(result["reason"])
        table.add_row(result["scenario"].replace("_", " "), _verdict(result), told, str(result["seconds"]))
    return table


if __name__ == "__main__":
    sys.exit(main())
