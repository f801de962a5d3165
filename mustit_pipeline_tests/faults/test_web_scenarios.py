"""The short version of the guessed logins; `make chaos` runs the long one, and kills databases under load."""

from mustit_pipeline_tests.faults.scenarios import QUICK
from mustit_pipeline_tests.faults.web_scenarios import logins_are_guessed
from mustit_pipeline_tests.faults.world import fresh_world


def test_guessed_logins_are_held_to_the_promised_rate() -> None:
    with fresh_world() as world:
        assert logins_are_guessed(world, QUICK)
