"""What answers mean: health, suspension, storms, the breaker. Each function works inside the caller's transaction."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from uuid import UUID

from sqlalchemy import Connection

from mustit_pipeline.agents.rules import agent_rules, storm_rules
from mustit_pipeline.domain.limits import HEALTH_MAX
from mustit_pipeline.domain.states import AgentStatus
from mustit_pipeline.domain.storm import StormRules
from mustit_pipeline.domain.user_agent import UserAgent
from mustit_pipeline.settings import Settings
from mustit_pipeline.store import agent_pool, agents

THROTTLED = "throttled by the marketplace"
UNWELL = "too many failed calls"


class Outcome(Enum):
    """How a booked request ended; a 429 is told to `AgentPool.throttled` instead."""

    SUCCESS = "success"
    SERVER_ERROR = "server error"
    FAILED = "failed"
    UNAUTHORIZED = "unauthorized"
    # Sent, and the marketplace may read it, and count it, only after we gave up: its moment is unknown.
    LOST = "lost"
    # The same, but it was we who gave up: the agent is not to blame.
    ABANDONED = "abandoned"
    NOT_SENT = "not sent"


@dataclass(frozen=True, slots=True)
class Throttling:
    """What a 429 was when it was judged: part of a storm, or this one's alone if others were answered meanwhile."""

    judged_at: datetime
    storm: bool
    others_answered_at: datetime | None = None

    def is_alone(self, since: "Throttling | None") -> bool:
        """Whether the host has answered somebody else since an earlier 429 to the same request."""
        answered = self.others_answered_at
        return since is not None and answered is not None and answered > since.judged_at


@dataclass(frozen=True, slots=True)
class Failure:
    """A request that ended badly, the token that it carried, and whether that was its agent's fault."""

    agent_id: UUID
    outcome: Outcome
    token_no: int
    blamed: bool = True


def judge(
    connection: Connection, settings: Settings, successes: Mapping[UUID, int], failures: Iterable[Failure]
) -> None:
    """Apply answers to their agents' health; whoever falls too low rests, and the breaker looks at who is left."""
    failed = list(failures)
    now = agent_pool.read_pool(connection, lock=bool(failed)).now
    judged = {*successes, *(failure.agent_id for failure in failed)}
    changed = agents.lock_agents(connection, judged, agent_rules(settings))
    known = {agent.id.value: agent for agent in changed}
    for agent_id, times in successes.items():
        for _ in range(min(times, HEALTH_MAX) if agent_id in known else 0):
            known[agent_id].success()
    for failure in failed:
        if failure.blamed and (agent := known.get(failure.agent_id)) is not None:
            _apply(agent, failure.outcome, now)
    agents.save_agents(connection, changed, UNWELL)
    for failure in failed:
        if failure.outcome is Outcome.UNAUTHORIZED:
            agents.drop_session(connection, failure.agent_id, failure.token_no)
    if failed:
        judge_breaker(connection, settings)


def _apply(agent: UserAgent, outcome: Outcome, now: datetime) -> None:
    if outcome is Outcome.SERVER_ERROR:
        agent.server_error(now)
    elif outcome in (Outcome.FAILED, Outcome.LOST, Outcome.UNAUTHORIZED):
        agent.failure(now)


def throttle(
    connection: Connection, settings: Settings, agent_id: UUID, asked_ago: float, retry_after: float | None
) -> Throttling:
    """One 429, among the written bookings already or to a call for a token."""
    pool = agent_pool.read_pool(connection, lock=True)
    rules = agent_rules(settings)
    asked = rules.honoured(retry_after)
    if pool.paused_until is not None and pool.now - timedelta(seconds=asked_ago) < pool.paused_until:
        # Sent before the host's pause was over: still the same event, which no agent is to blame for.
        agents.drop_session(connection, agent_id)
        until = max(pool.paused_until, pool.now + timedelta(seconds=asked))
        agent_pool.pause_host(connection, until, pool.pause_seconds, pool.pause_level)
        return Throttling(pool.now, storm=True)
    throttled = agents.lock_agents(connection, [agent_id], rules)
    for agent in throttled:
        agent.throttled(asked, pool.now)
    agents.save_agents(connection, throttled, THROTTLED, throttled_at=pool.now)
    verdict = _calm_storm(connection, settings, pool, asked)
    judge_breaker(connection, settings)
    return verdict


def _calm_storm(connection: Connection, settings: Settings, pool: agent_pool.PoolRow, asked: float) -> Throttling:
    rules = storm_rules(settings)
    window = timedelta(seconds=rules.window_seconds)
    # Whoever was throttled longer ago has rested since.
    oldest = pool.now - max(window, timedelta(seconds=settings.suspend_seconds))
    if pool.paused_until is not None:
        oldest = max(oldest, pool.paused_until)
    good_at = agent_pool.last_good_answer(connection, oldest)
    recent = agent_pool.read_recent_answers(connection, max(oldest, pool.now - window), good_at or oldest, window)
    level, pause = next_pause(rules, pool, asked)
    # After a pause the first answer says whether it is over: no agent is to blame for another 429.
    goes_on = level > 0 and good_at is None
    if not goes_on and not rules.is_storm(
        agents=len(recent.agents),
        throttled=recent.throttled,
        answers=recent.answers,
        in_a_row=len(recent.in_a_row),
    ):
        return Throttling(pool.now, storm=False, others_answered_at=good_at)
    locked = agents.lock_agents(connection, recent.agents | recent.in_a_row, agent_rules(settings))
    caught = [agent for agent in locked if agent.status is AgentStatus.SUSPENDED]
    for agent in caught:
        agent.return_from_storm()
    agents.save_agents(connection, caught, None)
    agent_pool.pause_host(connection, pool.now + timedelta(seconds=pause), pause, level)
    return Throttling(pool.now, storm=True)


def next_pause(rules: StormRules, pool: agent_pool.PoolRow, asked: float) -> tuple[int, float]:
    """The level of the next pause of the host and its length: twice the last one unless the host was calm since."""
    level = 0
    if pool.paused_until is not None:
        since = (pool.now - pool.paused_until).total_seconds()
        level = rules.next_level(pool.pause_level, last_pause=pool.pause_seconds, since_pause=since)
    return level, rules.pause(level, asked)


def judge_breaker(connection: Connection, settings: Settings) -> bool:
    """Open the breaker if too few agents are AVAILABLE; the caller holds the shared row's lock."""
    return agent_pool.open_breaker_if_few(connection, settings.breaker_min_available, settings.breaker_cooldown_seconds)
