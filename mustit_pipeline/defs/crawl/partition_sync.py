"""Partitions follow the registry of sellers."""

from collections.abc import Collection
from dataclasses import dataclass

import dagster as dg

from mustit_pipeline.defs.liveness import busy_sellers, unfinished_runs
from mustit_pipeline.defs.partitions import SELLERS
from mustit_pipeline.defs.resources import BusinessDatabase, SettingsResource
from mustit_pipeline.sellers.sql import sellers


@dataclass(frozen=True, slots=True)
class PartitionChanges:
    """What makes the partitions equal to the registry."""

    add: list[str]
    remove: list[str]


def partition_changes(
    registered: Collection[str], partitions: Collection[str], busy: Collection[str]
) -> PartitionChanges:
    """Add what is registered; remove what is not, but never under a run."""
    add = sorted(set(registered) - set(partitions))
    remove = sorted(set(partitions) - set(registered) - set(busy))
    return PartitionChanges(add, remove)


@dg.sensor(
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Keeps the partitions equal to the registered sellers, in bulk.",
)
def seller_partitions(
    context: dg.SensorEvaluationContext, settings: SettingsResource, database: BusinessDatabase
) -> dg.SkipReason:
    # The registry last: a seller that is registered or started meanwhile keeps its partition.
    partitions = context.instance.get_dynamic_partitions(SELLERS)
    busy = busy_sellers(unfinished_runs(context.instance, database.open(), settings.read()).alive)
    with database.open().reading() as connection:
        registered = sellers.all_ids(connection)
    changes = partition_changes(registered, partitions, busy)
    if changes.add:
        context.instance.add_dynamic_partitions(SELLERS, changes.add)
    for key in changes.remove:
        context.instance.delete_dynamic_partition(SELLERS, key)
    return dg.SkipReason(
        f"{len(registered)} sellers registered; {len(changes.add)} partitions added, {len(changes.remove)} removed"
    )
