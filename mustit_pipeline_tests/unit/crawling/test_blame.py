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


def test_after_so_many_different_agents_in_a_row_it_is_nobodys_fault() -> None:
    known = Blame(3)

    assert [known.falls_on(agent, DETAILS) for agent in AGENTS[:5]] == [True, True, True, False, False]


def test_one_agent_that_fails_again_and_again_is_always_at_fault() -> None:
    known = Blame(3)

    assert all(known.falls_on(AGENTS[0], DETAILS) for _ in range(100))


def test_a_good_answer_ends_the_row_of_its_own_subject_only() -> None:
    known = Blame(1)
    for subject in (DETAILS, OPTIONS, OTHERS):
        known.falls_on(AGENTS[0], subject)

    known.answered(DETAILS)

    assert [known.falls_on(AGENTS[1], subject) for subject in (DETAILS, OPTIONS, OTHERS)] == [True, False, False]


def test_what_is_remembered_is_bounded_and_the_oldest_row_goes_first() -> None:
    known = Blame(1)
    subjects = [Subject(SellerId(f"s{number}"), TaskType.MINISHOP) for number in range(blame.MOST_SUBJECTS + 1)]
    for subject in subjects:
        known.falls_on(AGENTS[0], subject)

    assert not known.falls_on(AGENTS[1], subjects[1])
    assert known.falls_on(AGENTS[1], subjects[0])
