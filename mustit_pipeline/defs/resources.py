"""What assets, ops, sensors and schedules need: the settings, and the business database, opened for one run or tick."""

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import Any

import dagster as dg
from pydantic import PrivateAttr

from mustit_pipeline.foundation import logs
from mustit_pipeline.foundation.database import Database, open_database
from mustit_pipeline.foundation.liveness import hold_liveness
from mustit_pipeline.settings import Settings, load_settings

# Neither resource reads or opens anything before it is asked: what is wrong then fails the step that asks, which can
# say so and whether repeating may heal it. A run that failed before its first step could not.


class SettingsResource(dg.ConfigurableResource):
    """The settings of this process, from its environment."""

    def read(self) -> Settings:
        """The settings; a wrong value raises SettingsError. Their secrets are hidden in logs from here on."""
        settings = load_settings()
        logs.hide_secrets_of(settings)
        return settings


class BusinessDatabase(dg.ConfigurableResource):
    """The business database that the settings name."""

    settings: SettingsResource
    _run_id: str | None = PrivateAttr(None)
    _database: Database | None = PrivateAttr(None)
    _opened: ExitStack | None = PrivateAttr(None)

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Generator["BusinessDatabase"]:
        run = context.run
        self._run_id = None if run is None else run.run_id
        with ExitStack() as self._opened, logs.about(run_id=self._run_id, job=None if run is None else run.job_name):
            yield self

    def open(self) -> Database:
        """The database, the same one until the run or tick ends; a run is seen alive from the moment it has it."""
        if self._opened is None:
            raise RuntimeError("the business database is used outside of a run or tick")
        if self._database is None:
            database = open_database(self.settings.read())
            self._opened.callback(database.close)
            if self._run_id is not None:
                self._opened.enter_context(hold_liveness(database, self._run_id))
            self._database = database
        return self._database


def resources_with(settings: SettingsResource) -> dict[str, Any]:
    """The resources that all capabilities share, with these settings."""
    # Tables are the values; what little ops hand to each other stays in the run's own process.
    return {
        "settings": settings,
        "database": BusinessDatabase(settings=settings),
        "io_manager": dg.mem_io_manager,
    }


# Jobs that a sensor names beside another one have them bound from the start: Dagster would otherwise make the sensor
# anew in a beta way.
RESOURCES = resources_with(SettingsResource())
defs = dg.Definitions(resources=RESOURCES, executor=dg.in_process_executor)
