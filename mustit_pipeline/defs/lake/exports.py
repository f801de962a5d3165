"""Two assets by day: the state of every product, and every change."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg

from mustit_pipeline.defs.failures import RETRY_TRANSIENT, readable_failures
from mustit_pipeline.defs.metadata import OWNERS, Stopwatch, columns, lineage
from mustit_pipeline.defs.partitions import DAY_CATALOG, DAY_CHANGES, EXPORTING_JOB, FIRST_DAY, days
from mustit_pipeline.defs.resources import BusinessDatabase, SettingsResource
from mustit_pipeline.defs.run_tags import HOUSEKEEPING
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.lake.columns import PRODUCT_CATALOG, PRODUCT_CHANGES, Column
from mustit_pipeline.lake.examination import CATALOG_KEY, CHANGES_KEY, examine
from mustit_pipeline.lake.export import Exported, export_catalog, export_changes
from mustit_pipeline.lake.missing_days import missing_days
from mustit_pipeline.lake.place import Place, lake_of
from mustit_pipeline.monitoring.metrics import SEOUL

SHOWN_SELLERS = 20
KINDS = {"python", "postgres", "pyarrow", "parquet"}
FROM_VERSIONS = [dg.AssetDep("product_change_sets", partition_mapping=dg.AllPartitionMapping())]

_FROM_CHANGES = ("change_type", "field", "old_value", "new_value", "old_number", "new_number")
_AS_STORED = ("seller_id", "item_no", "version")


@dataclass(frozen=True, slots=True)
class Export:
    """How a day of an asset is written, which key its files are ordered by, and where its columns come from."""

    write: Callable[[Database, Place, date], Exported]
    key: Sequence[str]
    lineage: Mapping[str, Any]


CATALOG = Export(
    export_catalog,
    CATALOG_KEY,
    lineage(
        **{name: f"product_change_sets.{name}" for name in _AS_STORED},
        **{one.name: "product_change_sets.product_data" for one in PRODUCT_CATALOG if one.path},
    ),
)
CHANGES = Export(
    export_changes,
    CHANGES_KEY,
    lineage(
        **{name: f"product_change_sets.{name}" for name in (*_AS_STORED, "life_cycle")},
        **dict.fromkeys(_FROM_CHANGES, "product_change_sets.changes"),
    ),
)


def schema_of(described: Sequence[Column]) -> Mapping[str, Any]:
    """The columns as Dagster shows them."""
    return columns(**{one.name: (one.type, one.description) for one in described})


def checks_of(asset: str, key: str) -> list[dg.AssetCheckSpec]:
    """What is judged of each day that was written."""
    return [
        dg.AssetCheckSpec(
            "every_row_arrived",
            asset=asset,
            description="The files of the day have as many rows as the database had in the snapshot that was written.",
        ),
        dg.AssetCheckSpec("no_key_twice", asset=asset, description=f"No two rows of the day have the same {key}."),
    ]


by_day = partial(
    dg.asset,
    deps=FROM_VERSIONS,
    partitions_def=days,
    group_name="lake",
    owners=OWNERS,
    kinds=KINDS,
    code_version="1",
    retry_policy=RETRY_TRANSIENT,
)


@by_day(check_specs=checks_of("product_catalog", "seller and item"), metadata=schema_of(PRODUCT_CATALOG))
def product_catalog(
    context: dg.AssetExecutionContext, settings: SettingsResource, database: BusinessDatabase
) -> dg.MaterializeResult:
    """Every product that was published and not deleted at the end of the day in Seoul, one folder for each seller. A
    past day can be written again: it is made of versions, which are kept for ever."""
    return _write(context, settings, database, CATALOG)


@by_day(
    check_specs=checks_of("product_changes", "seller, item, version and field"), metadata=schema_of(PRODUCT_CHANGES)
)
def product_changes(
    context: dg.AssetExecutionContext, settings: SettingsResource, database: BusinessDatabase
) -> dg.MaterializeResult:
    """Every change that was detected on the day in Seoul, field by field; a version without a changed field (created,
    deleted, sent again) is one row. A past day can be written again."""
    return _write(context, settings, database, CHANGES)


def _write(
    context: dg.AssetExecutionContext, settings: SettingsResource, database: BusinessDatabase, export: Export
) -> dg.MaterializeResult:
    watch = Stopwatch()
    with readable_failures():
        place = lake_of(settings.read())
        exported = export.write(database.open(), place, date.fromisoformat(context.partition_key))
        found = examine(place, exported.folder, export.key)
    written = exported.written
    return dg.MaterializeResult(
        metadata={
            "path": dg.MetadataValue.path(place.shown(exported.folder)),
            "dagster/partition_row_count": written.rows,
            "sellers": len(written.by_seller),
            "files": exported.files,
            "bytes": exported.bytes,
            **export.lineage,
            "largest sellers": dg.MetadataValue.md(largest_sellers(written.by_seller)),
            "duration_seconds": watch.seconds,
        },
        data_version=dg.DataVersion(written.fingerprint),
        check_results=[
            dg.AssetCheckResult(
                check_name="every_row_arrived",
                passed=found.rows == exported.stored_rows,
                metadata={"rows": found.rows, "stored_rows": exported.stored_rows},
            ),
            dg.AssetCheckResult(
                check_name="no_key_twice",
                passed=found.out_of_order == 0,
                metadata={"repeated": found.out_of_order},
            ),
        ],
    )


def largest_sellers(rows: Mapping[str, int]) -> str:
    """The sellers with most rows, as a table for the materialization's page."""
    largest = sorted(rows.items(), key=lambda one: (-one[1], one[0]))[:SHOWN_SELLERS]
    lines = [f"| {seller.replace('|', chr(92) + '|')} | {count} |" for seller, count in largest]
    return "\n".join(["| seller | rows |", "|---|---:|", *lines])


export_days = dg.define_asset_job(
    EXPORTING_JOB,
    selection=dg.AssetSelection.assets(product_catalog, product_changes),
    description="The catalogue at the end of one day in Seoul, and every change of that day, as Parquet.",
    tags=HOUSEKEEPING,
    executor_def=dg.in_process_executor,
)


@dg.schedule(
    job=export_days,
    cron_schedule="40 0 * * *",
    execution_timezone=SEOUL,
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Writes yesterday's catalogue and changes, and those of days of the last week that an outage left out.",
)
def daily_lake(context: dg.ScheduleEvaluationContext, database: BusinessDatabase) -> list[dg.RunRequest]:
    tick = context.scheduled_execution_time.astimezone(ZoneInfo(SEOUL))
    both = [context.instance.get_materialized_partitions(key) for key in (DAY_CATALOG, DAY_CHANGES)]
    stored = {date.fromisoformat(key) for key in set.intersection(*both)}
    missing = [day.isoformat() for day in missing_days(database.open(), tick, stored)]
    return [dg.RunRequest(run_key=f"{day}:{tick:%Y-%m-%d}", partition_key=day) for day in missing if day >= FIRST_DAY]
