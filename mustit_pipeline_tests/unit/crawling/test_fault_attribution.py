"""Who failed calls are charged to: an agent, the URL, the seller or the host."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from mustit_pipeline.agents.judgement import Throttling
from mustit_pipeline.crawling import fault_attribution
from mustit_pipeline.crawling.fault_attribution import (
    Charge,
    FaultAttribution,
    Refusals,
    Subject,
    charge_429,
    charge_answered,
)
from mustit_pipeline.domain.states import TaskType
from mustit_pipeline.domain.values import SellerId

DETAILS = Subject(SellerId("s"), TaskType.PRODUCT_DETAIL)
OPTIONS = Subject(SellerId("s"), TaskType.PRODUCT_OPTION)
OTHERS = Subject(SellerId("other"), TaskType.PRODUCT_DETAIL)
AGENTS = [UUID(int=number) for number in range(20)]
WELL = UUID(int=999)
NOON = datetime(2026, 11, 17, 12, tzinfo=UTC)
TRIES = 3


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


def known_host(charged_agents: int, clock: Clock | None = None) -> FaultAttribution:
    """A call has just been answered."""
    made = FaultAttribution(TRIES, charged_agents, clock or Clock())
    made.record_answer(WELL, None)
    return made


def at(seconds: float, *, storm: bool = False, answered: float | None = None) -> Throttling:
    others = None if answered is None else NOON + timedelta(seconds=answered)
    return Throttling(NOON + timedelta(seconds=seconds), storm, others)


@st.composite
def refusals(draw: st.DrawFn) -> Refusals:
    total = draw(st.integers(1, 40))
    agents = draw(st.integers(1, total))
    return Refusals(total, agents, draw(st.integers(0, agents)), draw(st.integers(0, total - 1)))


TRIES_SET = st.integers(2, 10)


@given(refusals(), TRIES_SET)
def test_a_url_is_charged_only_if_the_host_answers_others_and_so_many_429s_were_recorded_for_it(
    seen: Refusals, tries: int
) -> None:
    if charge_429(seen, tries) is Charge.URL:
        assert seen.host_answered >= tries - 1
        assert seen.total >= tries


@given(refusals(), TRIES_SET)
def test_while_a_url_is_refused_no_agent_and_no_host_is_charged_by_it(seen: Refusals, tries: int) -> None:
    assert charge_429(seen, tries) in (Charge.UNDECIDED, Charge.URL)


@given(refusals(), TRIES_SET)
def test_while_the_host_answers_others_no_url_is_asked_for_without_end(seen: Refusals, tries: int) -> None:
    answered = Refusals(2 * tries, min(seen.agents, 2 * tries), 0, 2 * tries - 1)
    assert charge_429(answered, tries) is Charge.URL


@given(refusals(), TRIES_SET)
def test_one_more_429_never_takes_a_charge_from_the_url(seen: Refusals, tries: int) -> None:
    if charge_429(seen, tries) is Charge.URL:
        more = Refusals(seen.total + 1, seen.agents + 1, seen.proven + 1, seen.host_answered + 1)
        assert charge_429(more, tries) is Charge.URL


@given(refusals(), TRIES_SET)
def test_agents_pay_for_a_url_that_is_answered_only_if_they_were_fewer_than_decide(seen: Refusals, tries: int) -> None:
    assert (charge_answered(seen, tries) is Charge.AGENT) is (seen.agents < tries)


@given(st.lists(st.tuples(st.sampled_from(AGENTS[:5]), st.sampled_from("xyz"), st.integers(0, 3)), max_size=60))
def test_whatever_happens_what_is_remembered_fits_together(events: list[tuple[UUID, str, int]]) -> None:
    """Every 429 ends in exactly one charge, and nothing is left of it then."""
    known = FaultAttribution(TRIES, 5, Clock())
    recorded = dict.fromkeys("xyz", 0)
    for second, (agent, url, what) in enumerate(events):
        if what == 0:
            known.record_answer(agent, None)
            ended = known.end_429s(url)
            assert (ended is not None) is (recorded[url] > 0)
            recorded[url] = 0
        elif what == 1:
            known.record_answer(WELL, None)
        elif what == 2 and second % 7 == 0:
            assert known.record_429(url, agent, at(second, storm=True)) is Charge.HOST
            recorded = dict.fromkeys("xyz", 0)
        else:
            charge = known.record_429(url, agent, at(second))
            recorded[url] = 0 if charge is Charge.URL else recorded[url] + 1


def test_a_url_that_is_throttled_while_others_are_answered_is_charged_after_so_many_agents() -> None:
    known = FaultAttribution(TRIES)

    charges = [known.record_429("x", AGENTS[n], at(2 * n, answered=2 * n - 1)) for n in range(3)]

    assert charges == [Charge.UNDECIDED, Charge.UNDECIDED, Charge.URL]
    assert known.end_429s("x") is None


def test_a_url_is_not_charged_while_the_host_answers_nothing_else() -> None:
    known = FaultAttribution(TRIES)

    assert {known.record_429("x", agent, at(n)) for n, agent in enumerate(AGENTS)} == {Charge.UNDECIDED}
    assert known.unexplained_429s("x") == len(AGENTS) - TRIES + 1
    known.record_answer(WELL, None)
    assert known.unexplained_429s("x") == 0


def test_storms_do_not_speak_against_a_url_however_many_there_were() -> None:
    known = FaultAttribution(TRIES)
    known.record_429("x", AGENTS[0], at(0))
    for second in (60, 120, 180):
        assert known.record_429("x", AGENTS[1], at(second, storm=True)) is Charge.HOST

    known.record_answer(WELL, None)
    assert known.record_429("x", AGENTS[2], at(190)) is Charge.UNDECIDED
    known.record_answer(WELL, None)
    assert known.record_429("x", AGENTS[3], at(200)) is Charge.UNDECIDED


def test_agents_that_are_throttled_everywhere_do_not_speak_against_a_url() -> None:
    known = FaultAttribution(TRIES)
    for n in range(3):
        known.record_429(f"other {n}", AGENTS[n], at(n))
    charges: list[Charge] = []
    for n in range(3):
        known.record_answer(WELL, None)
        charges.append(known.record_429("x", AGENTS[n], at(10 + n)))
    assert charges == [Charge.UNDECIDED] * 3

    # Answered elsewhere since, they are as good as any.
    for n in range(3):
        known.record_answer(AGENTS[n], None)
    assert known.record_429("x", AGENTS[3], at(20)) is Charge.URL


def test_an_agent_alone_pays_for_its_429_with_the_longest_retry_after_once_the_url_is_answered() -> None:
    known = FaultAttribution(TRIES)
    known.record_429("x", AGENTS[0], at(0), 7200.0)
    known.record_429("x", AGENTS[1], at(1), 10.0)

    ended = known.end_429s("x")

    assert ended is not None
    assert (ended.charge, ended.retry_after) == (Charge.AGENT, 7200.0)
    assert known.end_429s("x") is None


def test_a_429_of_an_hour_ago_is_another_story() -> None:
    known = FaultAttribution(TRIES)
    known.record_429("x", AGENTS[0], at(0))
    known.record_429("x", AGENTS[1], at(1, answered=0.5))

    assert known.record_429("x", AGENTS[2], at(3602, answered=3601)) is Charge.UNDECIDED


def test_after_so_many_different_agents_in_a_row_a_failed_call_is_charged_to_none() -> None:
    known = known_host(3)

    assert [known.charge(agent, DETAILS) for agent in AGENTS[:5]] == [True, True, True, False, False]


def test_one_agent_that_fails_again_and_again_is_always_charged() -> None:
    known = known_host(3)

    assert all(known.charge(AGENTS[0], DETAILS) for _ in range(100))


def test_a_good_answer_ends_the_row_of_its_own_subject_only() -> None:
    known = known_host(1)
    for subject in (DETAILS, OPTIONS, OTHERS):
        known.charge(AGENTS[0], subject)

    known.record_answer(WELL, DETAILS)

    assert [known.charge(AGENTS[1], subject) for subject in (DETAILS, OPTIONS, OTHERS)] == [True, False, False]


def test_a_host_that_does_not_answer_is_charged_to_the_agents_until_it_answers_something() -> None:
    """Otherwise an outage would fail task after task, and no breaker would make them wait."""
    clock = Clock()
    known = known_host(1, clock)
    known.charge(AGENTS[0], DETAILS)
    assert not known.charge(AGENTS[1], DETAILS)

    clock.now += fault_attribution.ANSWERS_SECONDS
    assert known.charge(AGENTS[1], DETAILS)

    known.record_answer(WELL, OTHERS)
    assert not known.charge(AGENTS[1], DETAILS)


def test_it_is_asked_now_and_then_whether_the_host_answers_anything_else() -> None:
    clock = Clock()
    known = FaultAttribution(TRIES, 1, clock)
    assert not known.begin_host_check(DETAILS)
    known.charge(AGENTS[0], DETAILS)

    assert [known.begin_host_check(DETAILS) for _ in range(3)] == [True, False, False]
    clock.now += fault_attribution.ANSWERS_SECONDS / 2
    assert known.begin_host_check(DETAILS)
    known.record_answer(WELL, None)
    clock.now += fault_attribution.ANSWERS_SECONDS / 4
    assert not known.begin_host_check(DETAILS)


def test_what_is_remembered_is_bounded_and_the_oldest_goes_first() -> None:
    known = known_host(1)
    subjects = [Subject(SellerId(f"s{n}"), TaskType.MINISHOP) for n in range(fault_attribution.MOST_SUBJECTS + 1)]
    for subject in subjects:
        known.charge(AGENTS[0], subject)
    for n in range(fault_attribution.MOST_URLS + 1):
        known.record_429(f"url {n}", AGENTS[0], at(0))

    assert not known.charge(AGENTS[1], subjects[1])
    assert known.charge(AGENTS[1], subjects[0])
    assert known.end_429s("url 0") is None
    assert known.end_429s("url 1") is not None
