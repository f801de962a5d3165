"""What is written next to assets and materializations."""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from mustit_pipeline.crawling.storing import WorkReport
from mustit_pipeline.store.executions import StoredExecution

OWNERS = ["team:data-engineering"]


def columns(**described: tuple[str, str]) -> Mapping[str, Any]:
    """The column schema of the table behind an asset: name=(type, description)."""
    schema = dg.TableSchema(
        columns=[
            dg.TableColumn(name, column_type, description) for name, (column_type, description) in described.items()
        ]
    )
    return {"dagster/column_schema": schema}


def work_metadata(report: WorkReport, stored: StoredExecution) -> dict[str, Any]:
    """What a stretch of work came to, as numbers that plot over time."""
    return {
        "execution_id": str(stored.execution.id),
        "completed": report.completed,
        "failed": report.failed,
        "requests": report.requests,
        "throttled": report.throttled,
        "remaining": report.remaining,
        "progress_percent": round(stored.execution.progress_rate, 2),
        "success_percent": round(stored.execution.success_rate, 2),
    }
