"""What the tests of recovery share."""

from collections.abc import Callable

import pytest

from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.upkeep.recovery import Recovered, find_stuck, recover
from mustit_pipeline_tests.conftest import MakeSettings

Pass = Callable[..., Recovered]


@pytest.fixture
def recovered(database: Database, make_settings: MakeSettings) -> Pass:
    """One pass, which must find just what was announced."""

    def run(*busy: str) -> Recovered:
        announced = find_stuck(database, utc_now(), busy=busy)
        assert recover(database, make_settings(), utc_now, busy=busy) == announced
        return announced

    return run
