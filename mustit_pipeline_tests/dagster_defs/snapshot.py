"""A small snapshot of the definitions, one line for each, so that nothing changes but on purpose.

    python -m mustit_pipeline_tests.dagster_defs.snapshot

writes it anew.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import dagster as dg

SNAPSHOT = Path(__file__).with_name("definitions.txt")


def snapshot_of(defs: dg.Definitions) -> str:
    """Every asset, check, job, sensor and schedule in one line of its own."""
    repository = defs.get_repository_def()
    lines = [*_assets(defs), *_checks(defs), *_jobs(repository), *_sensors(repository), *_schedules(repository)]
    return "".join(f"{line}\n" for line in lines)


def _assets(defs: dg.Definitions) -> Iterator[str]:
    graph = defs.resolve_asset_graph()
    for spec in sorted(defs.resolve_all_asset_specs(), key=lambda spec: spec.key):
        yield _line(
            f"asset {spec.key.to_user_string()}",
            f"from {_list(dep.asset_key.to_user_string() for dep in spec.deps)}",
            f"by {_partitions(spec.partitions_def)}",
            f"kinds {_list(spec.kinds)}",
            f"group {spec.group_name}",
            f"pool {_list(graph.get(spec.key).pools or ())}",
            f"code {spec.code_version or '-'}",
            "ours" if spec.key in graph.materializable_asset_keys else "external",
        )


def _partitions(found: dg.PartitionsDefinition[str] | None) -> str:
    if isinstance(found, dg.DynamicPartitionsDefinition):
        return str(found.name)
    if isinstance(found, dg.DailyPartitionsDefinition):
        return f"day in {found.timezone}"
    return "-" if found is None else type(found).__name__


def _checks(defs: dg.Definitions) -> Iterator[str]:
    graph = defs.resolve_asset_graph()
    for key in sorted(graph.asset_check_keys, key=lambda key: (key.asset_key, key.name)):
        spec = graph.get_check_spec(key)
        yield _line(
            f"check {key.asset_key.to_user_string()}.{key.name}", "blocks" if spec.blocking else "does not block"
        )


def _jobs(repository: dg.RepositoryDefinition) -> Iterator[str]:
    for job in sorted(repository.get_all_jobs(), key=lambda job: job.name):
        if not job.name.startswith("__"):
            tags = _list(f"{key}={value}" for key, value in job.tags.items())
            yield _line(f"job {job.name}", f"steps {_list(node.name for node in job.nodes)}", f"tags {tags}")


def _sensors(repository: dg.RepositoryDefinition) -> Iterator[str]:
    for sensor in sorted(repository.sensor_defs, key=lambda sensor: sensor.name):
        seconds = sensor.minimum_interval_seconds or "?"
        yield _line(f"sensor {sensor.name}", f"every {seconds} s", sensor.default_status.value)


def _schedules(repository: dg.RepositoryDefinition) -> Iterator[str]:
    for schedule in sorted(repository.schedule_defs, key=lambda schedule: schedule.name):
        when = f"{schedule.cron_schedule} {schedule.execution_timezone}"
        yield _line(f"schedule {schedule.name}", when, schedule.default_status.value, f"runs {schedule.job_name}")


def _list(words: Iterable[str]) -> str:
    return ", ".join(sorted(words)) or "-"


def _line(*parts: str) -> str:
    return " | ".join(parts)


if __name__ == "__main__":
    from mustit_pipeline.definitions import defs as ours

    SNAPSHOT.write_text(snapshot_of(ours))
