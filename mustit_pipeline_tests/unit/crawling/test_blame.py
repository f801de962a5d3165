"""Whose fault failed calls are."""

from uuid import UUID

from mustit_pipeline.crawling import blame
from mustit_pipeline.crawling.blame import Blame, Subject
from mustit_pipeline.domain.states import TaskType
from mustit_pipeline.domain.values import SellerId

DETAILS = Subject(SellerId("s"), TaskType.PRODUCT_DETAIL)
OPTIONS = Subject(SellerId("s"), TaskType.PRODUCT_OPTION)
OTHERS = Subject(SellerId("other"), TaskType.PRODUCT_DETAIL)
AGENTS = [UUID(int=number) for number in range(10)]


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def known_host(most_agents: int, clock: Clock | None = None) -> Blame:
    """Somebody has just been answered."""
    made = Blame(most_agents, clock or Clock())
    made.answered(None)
    return made


def test_after_so_many_different_agents_in_a_row_it_is_nobodys_fault() -> None:
    known = known_host(3)

    assert [known.falls_on(agent, DETAILS) for agent in AGENTS[:5]] == [True, True, True, False, False]


def test_one_agent_that_fails_again_and_again_is_always_at_fault() -> None:
    known = known_host(3)

    assert all(known.falls_on(AGENTS[0], DETAILS) for _ in range(100))


def test_a_good_answer_ends_the_row_of_its_own_subject_only() -> None:
    known = known_host(1)
    for subject in (DETAILS, OPTIONS, OTHERS):
        known.falls_on(AGENTS[0], subject)

    known.answered(DETAILS)

    assert [known.falls_on(AGENTS[1], subject) for subject in (DETAILS, OPTIONS, OTHERS)] == [True, False, False]


def test_a_host_that_answers_nobody_is_charged_to_the_agents_until_it_answers_something() -> None:
    """Otherwise an outage would fail task after task, and no breaker would make them wait."""
    clock = Clock()
    known = known_host(1, clock)
    known.falls_on(AGENTS[0], DETAILS)
    assert not known.falls_on(AGENTS[1], DETAILS)

    clock.now += blame.ANSWERS_SECONDS
    assert known.falls_on(AGENTS[1], DETAILS)

    known.answered(OTHERS)
    assert not known.falls_on(AGENTS[1], DETAILS)


def test_somebody_asks_now_and_then_whether_the_host_answers_anything_else() -> None:
    clock = Clock()
    known = Blame(1, clock)
    assert not known.doubts_host(DETAILS)
    known.falls_on(AGENTS[0], DETAILS)

    assert [known.doubts_host(DETAILS) for _ in range(3)] == [True, False, False]
    clock.now += blame.ANSWERS_SECONDS / 2
    assert known.doubts_host(DETAILS)
    known.answered(None)
    clock.now += blame.ANSWERS_SECONDS / 4
    assert not known.doubts_host(DETAILS)


def test_what_is_remembered_is_bounded_and_the_oldest_row_goes_first() -> None:
    known = known_host(1)
    subjects = [Subject(SellerId(f"s{number}"), TaskType.MINISHOP) for number in range(blame.MOST_SUBJECTS + 1)]
    for subject in subjects:
        known.falls_on(AGENTS[0], subject)

    assert not known.falls_on(AGENTS[1], subjects[1])
    assert known.falls_on(AGENTS[1], subjects[0])
