"""What assets, ops and sensors need: the settings and the business database, opened for one run or tick."""

from collections.abc import Generator
from contextlib import ExitStack, contextmanager

import dagster as dg
from pydantic import PrivateAttr

from mustit_pipeline.foundation.database import Database, open_database
from mustit_pipeline.foundation.liveness import present
from mustit_pipeline.settings import Settings, load_settings


class Pipeline(dg.ConfigurableResource):
    """The rooms' common ground; settings come from the environment.

    Nothing is read or opened before it is asked for: what is wrong with it then fails the step that asks, which can
    say so and whether repeating may heal it. A run that failed before its first step could not.
    """

    _run_id: str | None = PrivateAttr(None)
    _database: Database | None = PrivateAttr(None)
    _opened: ExitStack | None = PrivateAttr(None)

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Generator["Pipeline"]:
        self._run_id = None if context.run is None else context.run.run_id
        with ExitStack() as self._opened:
            yield self

    @property
    def settings(self) -> Settings:
        """The settings of this process."""
        return load_settings()

    @property
    def database(self) -> Database:
        """The business database; a run is seen alive from the moment it has it."""
        if self._opened is None:
            raise RuntimeError("the pipeline resource is used outside of a run or tick")
        if self._database is None:
            database = open_database(self.settings)
            self._opened.callback(database.close)
            if self._run_id is not None:
                self._opened.enter_context(present(database, self._run_id))
            self._database = database
        return self._database


# Tables are the values; what little ops hand to each other stays in the run's own process. Jobs that a sensor names
# beside another one have them bound from the start: Dagster would otherwise make the sensor anew in a beta way.
RESOURCES = {"pipeline": Pipeline(), "io_manager": dg.mem_io_manager}
