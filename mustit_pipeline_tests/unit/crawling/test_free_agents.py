"""When asking for an agent is worth it."""

from mustit_pipeline.crawling.worker import FreeAgents


def test_while_nothing_is_known_all_that_are_wanted_are_asked_for() -> None:
    assert FreeAgents().ask(7, now=100.0) == 7


def test_after_a_refusal_no_agent_is_asked_for_until_its_time_is_over() -> None:
    free = FreeAgents()
    free.mark_exhausted(100.0, 2.0, free.freed)
    assert (free.ask(7, now=101.0), free.blocked(101.0)) == (0, 1.0)
    assert (free.ask(7, now=102.0), free.blocked(102.0)) == (7, 0.0)


def test_the_earliest_of_several_refusals_counts() -> None:
    free = FreeAgents()
    for seconds in (2.0, 0.5, 1.0):
        free.mark_exhausted(100.0, seconds, free.freed)
    assert free.blocked(100.0) == 0.5


def test_each_agent_that_may_have_become_free_is_asked_for_once() -> None:
    free = FreeAgents()
    free.mark_exhausted(100.0, 2.0, free.freed)
    free.mark_released()
    free.mark_released()
    assert free.blocked(101.0) == 0.0
    assert [free.ask(1, now=101.0), free.ask(7, now=101.0), free.ask(7, now=101.0)] == [1, 1, 0]


def test_a_refusal_knows_of_those_freed_before_it_was_asked_for_and_of_no_later_ones() -> None:
    free = FreeAgents()
    free.mark_exhausted(100.0, 2.0, free.freed)
    free.mark_released()
    free.mark_released()
    free.mark_released()
    assert free.ask(1, now=101.0) == 1
    asked = free.freed
    free.mark_released()
    free.mark_exhausted(101.1, 0.9, asked)
    assert [free.ask(7, now=101.2), free.ask(7, now=101.2)] == [1, 0]
