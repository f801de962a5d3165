"""A run of the lake's job, as a process of its own: `python -m benchmarks.lake_worker DAY` prints what it came to."""

import json
import sys
from typing import Any

import dagster as dg

from benchmarks.job import peak_bytes
from mustit_pipeline.definitions import defs


def main() -> int:
    """One day, on an instance that keeps nothing."""
    with dg.DagsterInstance.ephemeral() as instance:
        result = defs.resolve_job_def("export_days").execute_in_process(instance=instance, partition_key=sys.argv[1])
    peak = peak_bytes()
    checks = result.get_asset_check_evaluations()
    days: list[dict[str, Any]] = []
    for event in result.get_asset_materialization_events():
        written = event.materialization
        metadata = {name: value.value for name, value in written.metadata.items()}
        days.append(
            {
                "day": sys.argv[1],
                "asset": written.asset_key.to_user_string(),
                "seconds": metadata["duration_seconds"],
                "rows": metadata["dagster/partition_row_count"],
                "files": metadata["files"],
                "bytes": metadata["bytes"],
                "checks": [one.passed for one in checks if one.asset_key == written.asset_key],
                "peak_bytes": peak,
            }
        )
    print(json.dumps(days))
    return 0 if result.success else 1


if __name__ == "__main__":
    sys.exit(main())
