"""When a URL that was answered with 429 again and again is at fault, and not the host or an agent."""

from datetime import UTC, datetime, timedelta

from mustit_pipeline.agents.judgement import Throttling
from mustit_pipeline.crawling.fetching import Refusals
from mustit_pipeline.domain.backoff import Tries

NOON = datetime(2026, 11, 17, 12, tzinfo=UTC)


def at(seconds: float, *, storm: bool = False, answered: float | None = None) -> Throttling:
    others = None if answered is None else NOON + timedelta(seconds=answered)
    return Throttling(NOON + timedelta(seconds=seconds), storm, others)


def test_a_url_that_is_throttled_while_others_are_answered_is_at_fault_after_so_many_agents() -> None:
    known = Refusals(Tries(3))

    assert [known.is_the_url(at(second, answered=second - 1)) for second in (0, 2, 4)] == [False, False, True]


def test_storms_do_not_speak_against_a_url_however_many_there_were() -> None:
    known = Refusals(Tries(3))
    for second in (0, 60, 120):
        assert not known.is_the_url(at(second, storm=True))

    assert not known.is_the_url(at(180, answered=179))
    assert known.is_the_url(at(182, answered=181))


def test_a_429_of_an_hour_ago_is_another_story() -> None:
    known = Refusals(Tries(3))
    known.is_the_url(at(0))

    assert not known.is_over(at(3600))
    assert known.is_over(at(3601))
