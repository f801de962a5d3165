"""The runtime of a command: settings, the upgraded database, and Dagster's instance, each opened on demand."""

import logging
import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, Connection, NullPool, create_engine
from sqlalchemy.exc import OperationalError

from mustit_pipeline.access.audit import AuditedDatabase
from mustit_pipeline.agents import roster
from mustit_pipeline.cli.actor import cli_actor
from mustit_pipeline.cli.dagster_home import celery_address, make_dagster_home, make_own_dagster_yaml
from mustit_pipeline.cli.output import err
from mustit_pipeline.cli.stopping import noted_signals, stopped_by
from mustit_pipeline.environment_failure import EnvironmentFailure
from mustit_pipeline.foundation import logs, schema
from mustit_pipeline.foundation.audited import Target
from mustit_pipeline.foundation.database import Database, DatabaseUnreachable, addresses, open_database
from mustit_pipeline.settings import Settings, load_settings

if TYPE_CHECKING:
    import dagster as dg


class RunFailed(EnvironmentFailure):
    """A Dagster run could not do its work; the message says why."""

    code = "EXTERNAL_RUN_FAILED"
    topic = "Dagster 실행이 실패했습니다"


@dataclass(frozen=True, slots=True)
class Runtime:
    """The settings and the database of one command."""

    settings: Settings
    database: Database

    def audited(self, action: str, target: Target) -> AuditedDatabase:
        """The database for one change by the operator, which is written down in the audit log."""
        return AuditedDatabase(self.database, cli_actor(), action, target)


@contextmanager
def runtime() -> Generator[Runtime]:
    """Open the database; the embedded one is upgraded first, another one must be up to date."""
    settings = load_settings()
    logs.hide_secrets_of(settings)
    if settings.embedded:
        upgrade(settings)
    database = open_database(settings)
    try:
        yield Runtime(settings, database)
    finally:
        database.close()


def add_missing_agents(settings: Settings) -> int:
    """Add missing built-in user agents if the schema is up to date; returns their number."""
    database = open_database(settings)
    try:
        with database.transaction() as connection:
            return roster.ensure_builtin(connection)
    finally:
        database.close()


def upgrade(settings: Settings) -> schema.SchemaStatus:
    """Bring the schema up to date and add the built-in user agents; returns the schema's state before."""
    settings.make_secrets()
    database = open_database(settings, check_schema=False)
    try:
        with database.reading() as connection:
            before = schema.status(connection)
            if before.is_current:
                return before
        with database.transaction() as connection:
            before = _upgrade(connection)
    finally:
        database.close()
    return before


def _upgrade(connection: Connection) -> schema.SchemaStatus:
    before = schema.upgrade(connection)
    roster.ensure_builtin(connection)
    return before


def dagster_environment(settings: Settings) -> dict[str, str]:
    """The environment of a Dagster process; prepares DAGSTER_HOME."""
    home = make_dagster_home(settings)
    servers = addresses(settings)
    broker = settings.broker_url or servers.redis_url
    return {
        "DAGSTER_HOME": str(home),
        "DAGSTER_STORAGE_URL": _in_utc(servers.dagster_database_url).render_as_string(hide_password=False),
        "DAGSTER_DISABLE_TELEMETRY": "yes",
        "MUSTIT_HOME": str(settings.home),
        "MUSTIT_RUNS_AT_ONCE": str(settings.runs_at_once),
        **({"DAGSTER_CELERY_URL": celery_address(broker)} if broker is not None else {}),
    }


def _in_utc(url: URL) -> URL:
    """Dagster reads the times of its tables as UTC, and PostgreSQL writes them in the session's time zone."""
    given = url.normalized_query.get("options", ())
    return url.update_query_dict({"options": " ".join((*given, "-c timezone=UTC"))})


@contextmanager
def dagster_instance(settings: Settings, *, runs_here: bool = False) -> Generator["dg.DagsterInstance"]:
    """Dagster's instance, with its storage in our PostgreSQL.

    With `runs_here`, runs in this process keep its output: Dagster would redirect it to a file, where no progress is
    seen, and mirror it with processes that print errors on Ctrl-C.
    """
    os.environ.update(dagster_environment(settings))
    _require_dagster_database(addresses(settings).dagster_database_url)
    import dagster as dg

    if runs_here:
        folder, name = make_own_dagster_yaml(settings, Path(os.environ["DAGSTER_HOME"]))
        opened = dg.DagsterInstance.from_config(str(folder), name)
    else:
        opened = dg.DagsterInstance.get()
    with opened as instance:
        yield instance


def upgrade_dagster(settings: Settings) -> None:
    """Create or upgrade Dagster's own tables, before several processes would do so at once."""
    with dagster_instance(settings) as instance:
        instance.upgrade()


def _require_dagster_database(url: URL) -> None:
    """Connect once: Dagster itself would retry for 15 seconds, and its error names no address."""
    engine = create_engine(url, poolclass=NullPool, connect_args={"connect_timeout": 10})
    try:
        engine.connect().close()
    except OperationalError as error:
        reason = str(error.orig).strip().splitlines()[0]
        raise DatabaseUnreachable(
            f"Dagster's database does not answer at {url.render_as_string(hide_password=True)}: {reason}. "
            "Check MUSTIT_DAGSTER_DATABASE_URL",
            korean=f"{DatabaseUnreachable.topic}: {url.render_as_string(hide_password=True)}의 Dagster 데이터베이스: "
            f"{reason}. MUSTIT_DAGSTER_DATABASE_URL을 확인하세요",
        ) from None


def ensure_partition(instance: "dg.DagsterInstance", seller_id: str) -> None:
    """Add a seller's partition at once; the sensor only reconciles."""
    from mustit_pipeline.defs.partitions import SELLERS

    if not instance.has_dynamic_partition(SELLERS, seller_id):
        instance.add_dynamic_partitions(SELLERS, [seller_id])


def announce_partitions(settings: Settings, seller_ids: Sequence[str]) -> None:
    """The same for stored sellers; if Dagster's database does not answer, the sensor adds them later."""
    from mustit_pipeline.defs.partitions import SELLERS

    try:
        with dagster_instance(settings) as instance:
            instance.add_dynamic_partitions(SELLERS, seller_ids)
    except DatabaseUnreachable as error:
        err.print("[yellow]Dagster shows new sellers as partitions later:[/yellow]", end=" ")
        err.print(str(error), markup=False, highlight=False, soft_wrap=True)


def run_quietly(
    instance: "dg.DagsterInstance", job: str, config: Mapping[str, Any] | None = None, **options: Any
) -> "dg.ExecuteInProcessResult":
    """Run a job in this process, as the daemon would; its output goes only to Dagster's logs."""
    from mustit_pipeline.definitions import defs

    logging.getLogger("dagster").setLevel(logging.CRITICAL)
    quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    with noted_signals():
        result = defs.resolve_job_def(job).execute_in_process(
            instance=instance, raise_on_error=False, run_config={**(config or {}), **quiet}, **options
        )
    number = stopped_by(result)
    if number is not None and not result.success:
        # Dagster calls it failed: an alert would be opened, and a crawl's slice would count as crashed.
        instance.report_run_canceled(result.dagster_run, f"Stopped by {number.name}")
    return result


def failure_reason(result: "dg.ExecuteInProcessResult") -> str:
    """Why a run's first failed step failed, for people."""
    for event in result.all_events:
        if not event.is_step_failure:
            continue
        data = event.step_failure_data
        if data.user_failure_data is not None and data.user_failure_data.description:
            return data.user_failure_data.description
        if data.error is not None:
            if data.error.cls_name == "DagsterExecutionInterruptedError":
                return "interrupted: the next run goes on from what is stored"
            return (data.error.cause or data.error).message.strip()
    return "the run ended before its first step"
