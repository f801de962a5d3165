"""What assets, ops and sensors need: the settings and the business database, opened for one run or tick."""

from collections.abc import Generator
from contextlib import contextmanager, nullcontext

import dagster as dg
from pydantic import PrivateAttr

from mustit_pipeline.settings import Settings, load_settings
from mustit_pipeline.store.database import Database, open_database
from mustit_pipeline.store.presence import present


class Pipeline(dg.ConfigurableResource):
    """The rooms' common ground; settings come from the environment."""

    _settings: Settings | None = PrivateAttr(None)
    _database: Database | None = PrivateAttr(None)

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Generator["Pipeline"]:
        self._settings = load_settings()
        self._database = open_database(self._settings)
        try:
            with nullcontext() if context.run is None else present(self._database, context.run.run_id):
                yield self
        finally:
            self._database.close()

    @property
    def settings(self) -> Settings:
        """The settings of this process."""
        if self._settings is None:
            raise RuntimeError("the pipeline resource is used outside of a run or tick")
        return self._settings

    @property
    def database(self) -> Database:
        """The business database."""
        if self._database is None:
            raise RuntimeError("the pipeline resource is used outside of a run or tick")
        return self._database
