"""How many connections a process keeps, and how many it opens at most."""

from contextlib import ExitStack

import pytest
from sqlalchemy.exc import TimeoutError as NoConnection
from sqlalchemy.pool import QueuePool

from mustit_pipeline.store.database import open_database
from mustit_pipeline_tests.conftest import MakeSettings


def test_a_process_opens_as_many_connections_as_the_settings_allow(
    make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = open_database(make_settings(database_connections=1, database_max_connections=2))
    pool = database.engine.pool
    assert isinstance(pool, QueuePool)
    monkeypatch.setattr(pool, "_timeout", 0.05)
    try:
        with ExitStack() as held:
            for _ in range(2):
                held.enter_context(database.transaction())
            with pytest.raises(NoConnection):
                held.enter_context(database.transaction())
        assert pool.checkedin() == 1
    finally:
        database.close()
