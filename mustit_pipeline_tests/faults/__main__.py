"""`make chaos`: the long fault-injection suite; prints a table and writes build/chaos.json."""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from mustit_pipeline_tests.faults.catalog_scenarios import CATALOG_SCENARIOS
from mustit_pipeline_tests.faults.celery_scenarios import CELERY_SCENARIOS
from mustit_pipeline_tests.faults.delivery_scenarios import DELIVERY_SCENARIOS
from mustit_pipeline_tests.faults.engine_scenarios import ENGINE_SCENARIOS
from mustit_pipeline_tests.faults.many_sellers_scenarios import MANY_SELLERS_SCENARIOS
from mustit_pipeline_tests.faults.scenarios import LONG, QUICK
from mustit_pipeline_tests.faults.scenarios import SCENARIOS as PIPELINE_SCENARIOS
from mustit_pipeline_tests.faults.throttling_scenarios import THROTTLING_SCENARIOS
from mustit_pipeline_tests.faults.world import fresh_world

SCENARIOS = (
    *ENGINE_SCENARIOS,
    *THROTTLING_SCENARIOS,
    *CATALOG_SCENARIOS,
    *PIPELINE_SCENARIOS,
    *DELIVERY_SCENARIOS,
    *CELERY_SCENARIOS,
    *MANY_SELLERS_SCENARIOS,
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m mustit_pipeline_tests.faults", description=__doc__)
    names = [scenario.__name__ for scenario in SCENARIOS]
    parser.add_argument("scenario", nargs="*", choices=[*names, []], help="only these (default: all)")
    parser.add_argument("--quick", action="store_true", help="the short version that every test run does")
    parser.add_argument("--output", type=Path, default=Path("build/chaos.json"))
    options = parser.parse_args()
    console = Console()
    results: list[dict[str, Any]] = []
    for scenario in SCENARIOS:
        if options.scenario and scenario.__name__ not in options.scenario:
            continue
        console.print(f"{scenario.__name__.replace('_', ' ')} …", highlight=False)
        started = time.monotonic()
        result: dict[str, Any] = {"scenario": scenario.__name__, "passed": True}
        try:
            with fresh_world() as world:
                result |= {"numbers": scenario(world, QUICK if options.quick else LONG)}
        except AssertionError as error:
            result |= {"passed": False, "reason": str(error)}
        results.append(result | {"seconds": round(time.monotonic() - started, 1)})
        # After each: whoever stops a suite of many minutes keeps what it has shown so far.
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n")
    table = Table("scenario", "", "numbers", "s", title="faults", title_justify="left")
    for result in results:
        numbers = ", ".join(f"{name} {number}" for name, number in result.get("numbers", {}).items())
        verdict = "[green]holds[/]" if result["passed"] else "[red]broken[/]"
        table.add_row(
            result["scenario"].replace("_", " "), verdict, numbers or result.get("reason", ""), str(result["seconds"])
        )
    console.print(table)
    console.print(f"written to {options.output}", highlight=False)
    return 0 if all(result["passed"] for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
