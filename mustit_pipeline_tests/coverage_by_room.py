"""How much of each room the tests reach, from a JSON report of coverage, as `make coverage` prints it."""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

MEASURED = ("num_statements", "missing_lines", "num_branches", "missing_branches")


def rooms(report: dict[str, Any]) -> dict[str, Counter[str]]:
    """What coverage's JSON report counts, summed by room; a module beside the rooms is a room of its own."""
    found: dict[str, Counter[str]] = {}
    for name, file in report["files"].items():
        room = Path(name).parts[Path(name).parts.index("mustit_pipeline") + 1].removesuffix(".py")
        found.setdefault(room, Counter()).update({what: file["summary"][what] for what in MEASURED})
    return {room: found[room] for room in sorted(found) if found[room].total()}


def percent(counted: Counter[str]) -> float:
    """Statements and branches that were reached, of all."""
    total = counted["num_statements"] + counted["num_branches"]
    return 100 * (1 - (counted["missing_lines"] + counted["missing_branches"]) / total) if total else 100.0


def main() -> None:
    """Print one line for each room and one for all."""
    found = rooms(json.loads(Path(sys.argv[1]).read_bytes()))
    print(f"{'room':<20} {'statements':>10} {'missed':>7} {'branches':>9} {'missed':>7} {'reached':>8}")
    for room, counted in (found | {"all": sum(found.values(), Counter[str]())}).items():
        print(
            f"{room:<20} {counted['num_statements']:>10} {counted['missing_lines']:>7} "
            f"{counted['num_branches']:>9} {counted['missing_branches']:>7} {percent(counted):>7.1f}%"
        )


if __name__ == "__main__":
    main()
