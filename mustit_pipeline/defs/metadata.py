"""What is written next to assets and materializations."""

import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import dagster as dg

from mustit_pipeline.catalog.sql import products
from mustit_pipeline.catalog.sql.history import LargeChange
from mustit_pipeline.catalog.sql.products import Fingerprints
from mustit_pipeline.crawling.result_buffer import Tally
from mustit_pipeline.crawling.sql.executions import StoredExecution
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.settings import Settings

OWNERS = ["team:data-engineering"]


def columns(**described: tuple[str, str]) -> Mapping[str, Any]:
    """The column schema of the table behind an asset: name=(type, description)."""
    schema = dg.TableSchema(
        columns=[
            dg.TableColumn(name, column_type, description) for name, (column_type, description) in described.items()
        ]
    )
    return {"dagster/column_schema": schema}


def lineage(**sources: str) -> Mapping[str, Any]:
    """Where the columns of a materialization come from: name="asset.column", several separated by blanks."""
    found = {
        name: [dg.TableColumnDep(*source.split(".", 1)) for source in text.split()] for name, text in sources.items()
    }
    return {"dagster/column_lineage": dg.TableColumnLineage(found)}


def content_of(database: Database, seller_id: str) -> Fingerprints:
    """What the seller's tables hold now; a data version is made of it, so that what is unchanged shows as such."""
    with database.reading() as connection:
        return products.fingerprints(connection, seller_id)


class Stopwatch:
    """The time that a step has taken so far."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        return round(time.monotonic() - self._began, 3)


def changes_table(changes: Sequence[LargeChange]) -> dg.MetadataValue:
    """The largest changes, as a table for people."""
    if not changes:
        return dg.MetadataValue.md("No known product has changed.")
    lines = ["| item | version | what | fields | price | old | new | % |", "|---|---|---|---:|---|---:|---:|---:|"]
    for one in changes:
        move = one.move
        price = "| | |" if move is None else f"{move.field} | {move.old:,} | {move.new:,} | {move.percent:+.1f}"
        lines.append(f"| {one.item_no} | {one.version} | {', '.join(one.types)} | {one.fields} | {price} |")
    return dg.MetadataValue.md("\n".join(lines))


def console_links(settings: Settings, stored: StoredExecution) -> dict[str, Any]:
    """The crawl and its seller in the console, as links beside a materialization."""
    console, seller = settings.console_url or settings.api_address, quote(stored.seller_id.value, safe="")
    return {
        "console_crawl": dg.MetadataValue.url(f"{console}/executions/{stored.id}"),
        "console_seller": dg.MetadataValue.url(f"{console}/sellers/{seller}"),
    }


def work_metadata(done: Tally, remaining: int, stored: StoredExecution) -> dict[str, Any]:
    """What a stretch of work came to for one asset, as numbers that plot over time: always all of them."""
    execution = stored.execution
    return {
        "execution_id": str(stored.id),
        "completed": done.completed,
        "failed": done.failed,
        "requests": done.requests,
        "throttled": done.throttled,
        "drifted_fields": len(stored.drift),
        "remaining": remaining,
        "progress_percent": round(execution.progress_rate, 2),
        "success_percent": round(execution.success_rate, 2),
    }


def coverage_percent(rows: int, wanted: int) -> float:
    """How much of what there should be is there."""
    return round(min(100.0, 100.0 * rows / wanted), 2) if wanted else 100.0
