"""Agents: health, suspension, tokens and blocking."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustit_pipeline.domain.errors import Conflict, InvariantViolated, ValidationFailed
from mustit_pipeline.domain.states import AgentStatus
from mustit_pipeline.domain.user_agent import AgentRules
from mustit_pipeline_tests.unit.domain.builders import LATER, T0, agent

AVAILABLE, SUSPENDED, BLOCKED = AgentStatus.AVAILABLE, AgentStatus.SUSPENDED, AgentStatus.BLOCKED
HOUR = timedelta(hours=1)
DAY = timedelta(hours=24)

ANSWERS = {
    "success": lambda a, now: a.success(),
    "throttled": lambda a, now: a.throttled(None, now),
    "server_error": lambda a, now: a.server_error(now),
    "failure": lambda a, now: a.failure(now),
}


@pytest.mark.parametrize("text", ["", " ", "Mozilla\r\nX-Forged: 1"])
def test_a_user_agent_that_cannot_be_sent_is_refused(text: str) -> None:
    with pytest.raises(ValidationFailed) as refused:
        agent(user_agent=text)
    assert refused.value.code == "VALIDATION_USER_AGENT"


def test_a_new_agent_is_available_and_healthy_but_has_no_token() -> None:
    fresh = agent()
    assert (fresh.status, fresh.health, fresh.token_expires_at) == (AVAILABLE, 100, None)


@pytest.mark.parametrize(
    ("answer", "before", "after"),
    [
        ("success", 50, 55),
        ("success", 98, 100),
        ("success", 100, 100),
        ("throttled", 100, 80),
        ("throttled", 10, 0),
        ("server_error", 100, 90),
        ("server_error", 3, 0),
        ("failure", 100, 95),
        ("failure", 0, 0),
    ],
)
def test_answers_change_health(answer: str, before: int, after: int) -> None:
    judged = agent(health=before)
    ANSWERS[answer](judged, T0)
    assert judged.health == after


@pytest.mark.parametrize(
    ("answer", "before", "status"),
    [
        ("server_error", 40, AVAILABLE),
        ("server_error", 39, SUSPENDED),
        ("failure", 35, AVAILABLE),
        ("failure", 34, SUSPENDED),
    ],
)
def test_an_agent_below_30_rests_for_an_hour(answer: str, before: int, status: AgentStatus) -> None:
    judged = agent(health=before)
    ANSWERS[answer](judged, T0)
    assert judged.status is status
    assert judged.suspended_until == (T0 + HOUR if status is SUSPENDED else None)


@pytest.mark.parametrize(
    ("retry_after", "rest"),
    [
        (None, HOUR),
        (0, HOUR),
        (-5, HOUR),
        (3599, HOUR),
        (3601, timedelta(seconds=3601)),
        (7200, 2 * HOUR),
        (86400, DAY),
        (86401, DAY),
        (1e12, DAY),
        (float("inf"), DAY),
    ],
)
def test_a_throttled_agent_rests_as_long_as_asked_up_to_a_day(retry_after: float | None, rest: timedelta) -> None:
    throttled = agent(token_expires_at=LATER)
    throttled.throttled(retry_after, T0)
    assert (throttled.status, throttled.suspended_until) == (SUSPENDED, T0 + rest)
    assert throttled.token_expires_at is None


def test_the_length_of_a_suspension_is_a_rule() -> None:
    rules = AgentRules(suspend_seconds=5, longest_retry_after_seconds=9)
    for suspend, seconds in (
        (lambda a: a.throttled(None, T0), 5),
        (lambda a: a.throttled(7, T0), 7),
        (lambda a: a.throttled(3600, T0), 9),
        (lambda a: a.server_error(T0), 5),
        (lambda a: a.failure(T0), 5),
    ):
        suspended = agent(health=30, rules=rules)
        suspend(suspended)
        assert suspended.suspended_until == T0 + timedelta(seconds=seconds)


def test_what_answers_give_and_cost_is_a_rule() -> None:
    rules = AgentRules(gain_success=1, cost_throttled=2, cost_server_error=3, cost_failure=4, floor=0)
    for answer, health in (("success", 51), ("throttled", 48), ("server_error", 47), ("failure", 46)):
        judged = agent(health=50, rules=rules)
        ANSWERS[answer](judged, T0)
        assert judged.health == health


@pytest.mark.parametrize(("health", "status"), [(55, AVAILABLE), (54, SUSPENDED)])
def test_the_health_below_which_an_agent_rests_is_a_rule(health: int, status: AgentStatus) -> None:
    judged = agent(health=health, rules=AgentRules(floor=50))
    judged.failure(T0)
    assert judged.status is status


def test_the_health_of_a_returning_agent_is_a_rule() -> None:
    back, freed = (agent(status=status, rules=AgentRules(recovered=44)) for status in (SUSPENDED, BLOCKED))
    back.recover(T0)
    freed.unblock()
    assert (back.health, freed.health) == (44, 44)


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [(None, 0), (0.0, 0), (-1.0, 0), (float("nan"), 0), (5.5, 5.5), (86_400.5, 86_400), (float("inf"), 86_400)],
)
def test_odd_values_of_retry_after_are_nothing_or_a_day(asked: float | None, seconds: float) -> None:
    assert AgentRules().honoured(asked) == seconds


def test_a_later_answer_never_shortens_a_suspension() -> None:
    suspended = agent()
    suspended.throttled(7200, T0)
    suspended.throttled(None, T0)
    assert suspended.suspended_until == T0 + 2 * HOUR


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_answer_that_comes_late_leaves_a_blocked_agent_blocked(answer: str) -> None:
    blocked = agent(status=BLOCKED, health=20)
    ANSWERS[answer](blocked, T0)
    assert (blocked.status, blocked.suspended_until) == (BLOCKED, None)


@given(st.lists(st.sampled_from([*ANSWERS, "recover", "give_back"])))
def test_health_stays_in_bounds_and_a_sick_agent_is_never_available(answers: list[str]) -> None:
    judged = agent()
    for answer in answers:
        if answer in ANSWERS:
            ANSWERS[answer](judged, T0)
        elif judged.status is SUSPENDED:
            if answer == "recover":
                judged.recover(T0 + DAY)
            else:
                judged.give_back()
        assert 0 <= judged.health <= 100
        assert judged.status is SUSPENDED or judged.health >= 30


def test_a_suspended_agent_recovers_when_its_time_is_over_and_not_before() -> None:
    suspended = agent(health=20, token_expires_at=LATER)
    suspended.throttled(None, T0)
    too_early = T0 + HOUR - timedelta(microseconds=1)
    assert not suspended.is_recoverable(too_early)
    with pytest.raises(InvariantViolated) as refused:
        suspended.recover(too_early)
    assert refused.value.code == "INVARIANT_AGENT_RESTING"
    assert suspended.is_recoverable(T0 + HOUR)
    suspended.recover(T0 + HOUR)
    assert (suspended.status, suspended.health, suspended.suspended_until) == (AVAILABLE, 70, None)


def test_an_agent_suspended_for_its_health_recovers_with_a_new_token() -> None:
    sick = agent(health=30, token_expires_at=T0 + DAY)
    sick.failure(T0)
    sick.recover(T0 + HOUR)
    assert (sick.health, sick.token_expires_at) == (70, None)


@pytest.mark.parametrize("status", AgentStatus)
def test_only_a_suspended_agent_is_recoverable(status: AgentStatus) -> None:
    assert agent(status=status).is_recoverable(T0) is (status is SUSPENDED)


@pytest.mark.parametrize("before", [30, 45, 100])
def test_a_storm_costs_an_agent_neither_time_nor_health(before: int) -> None:
    stormed = agent(health=before)
    stormed.throttled(7200, T0)
    stormed.give_back()
    assert (stormed.status, stormed.health, stormed.suspended_until) == (AVAILABLE, before, None)


@pytest.mark.parametrize("status", [AVAILABLE, BLOCKED])
def test_only_a_suspended_agent_returns_from_a_storm(status: AgentStatus) -> None:
    with pytest.raises(Conflict) as refused:
        agent(status=status).give_back()
    assert refused.value.code == "CONFLICT_AGENT_RECOVER"


@pytest.mark.parametrize("allowed", [1, 4])
def test_the_number_of_failed_issues_that_block_is_a_rule(allowed: int) -> None:
    failing = agent(rules=AgentRules(issue_failures=allowed))
    for _ in range(allowed - 1):
        failing.issue_failed()
        assert failing.status is AVAILABLE
    failing.issue_failed()
    assert failing.status is BLOCKED


@pytest.mark.parametrize("status", [AVAILABLE, SUSPENDED])
def test_the_third_failed_issue_in_a_row_blocks_an_agent(status: AgentStatus) -> None:
    failing = agent(status=status)
    for _ in range(2):
        failing.issue_failed()
        assert failing.status is status
    failing.issue_failed()
    assert failing.status is BLOCKED
    failing.issue_failed()
    assert failing.status is BLOCKED


def test_an_issued_token_ends_the_row_of_failed_issues() -> None:
    failing = agent()
    for _ in range(5):
        failing.issue_failed()
        failing.issue_failed()
        failing.issued(LATER)
    assert (failing.status, failing.issue_failures) == (AVAILABLE, 0)


def test_an_unblocked_agent_starts_afresh() -> None:
    blocked = agent(health=10, token_expires_at=LATER)
    blocked.block()
    assert (blocked.token_expires_at, blocked.suspended_until) == (None, None)
    blocked.issue_failed()
    blocked.unblock()
    assert (blocked.status, blocked.health, blocked.issue_failures) == (AVAILABLE, 70, 0)
