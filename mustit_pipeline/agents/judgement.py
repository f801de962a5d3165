"""What answers mean: health, suspension, storms, the breaker. Each function works inside the caller's transaction."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import Enum
from uuid import UUID

from sqlalchemy import Connection

from mustit_pipeline.agents.rules import agent_rules, storm_rules
from mustit_pipeline.domain.limits import HEALTH_MAX
from mustit_pipeline.domain.states import AgentStatus
from mustit_pipeline.domain.storm import Refused, StormRules, product_of
from mustit_pipeline.domain.user_agent import UserAgent
from mustit_pipeline.settings import Settings
from mustit_pipeline.store import agent_pool, agents

# The reasons in an agent's row name the URL of its last 429: that is how workers know of each other's.
CHARGED = "throttled by the marketplace: "
UNDECIDED = "throttled, and it may be the URL's fault: "
UNWELL = "too many failed calls"


class Outcome(Enum):
    """How a booked request ended; a 429 is told to `AgentPool.throttled` instead."""

    SUCCESS = "success"
    SERVER_ERROR = "server error"
    FAILED = "failed"
    UNAUTHORIZED = "unauthorized"
    # Sent, and the marketplace may read it, and count it, only after we gave up: its moment is unknown.
    LOST = "lost"
    # The same, but it was we who gave up: that is not the agent's fault.
    ABANDONED = "abandoned"
    NOT_SENT = "not sent"


@dataclass(frozen=True, slots=True)
class Throttling:
    """What a 429 was when it was judged: part of a storm, or not, and when the host last answered another call well."""

    judged_at: datetime
    storm: bool
    others_answered_at: datetime | None = None

    def others_answered_since(self, earlier: "Throttling") -> bool:
        """Whether the host had answered another call since an earlier 429 to the same URL."""
        return self.others_answered_at is not None and self.others_answered_at > earlier.judged_at


@dataclass(frozen=True, slots=True)
class Call429:
    """A call that was answered with 429: when it was sent (on this process's monotonic clock) and what it asked for.

    A `control` is a call by which the host is judged: where it is refused, the URLs refused before are not at fault. An
    `own` one was for the agent alone (its token), so that the agent pays whatever others are answered.
    """

    sent: float
    retry_after: float | None
    url: str
    control: bool = False
    own: bool = False


@dataclass(frozen=True, slots=True)
class _Recorded:
    """An agent's last 429, charged to it or undecided."""

    agent_id: UUID
    url: str
    charged: bool
    at: datetime

    @property
    def subject(self) -> str:
        return product_of(self.url) or self.url


@dataclass(frozen=True, slots=True)
class Failure:
    """A request that ended badly, the token that it carried, and whether that is charged to its agent."""

    agent_id: UUID
    outcome: Outcome
    token_no: int
    charged: bool = True


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
        if failure.charged and (agent := known.get(failure.agent_id)) is not None:
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


def throttle(connection: Connection, settings: Settings, agent_id: UUID, call: Call429) -> Throttling:
    """One 429, among the written bookings already or to a call for a token.

    The agent rests at once, though the URL may be at fault; but only a small share of the pool does so on suspicion:
    the others are charged when the URL is answered to another agent.
    """
    pool = agent_pool.read_pool(connection, lock=True)
    rules = agent_rules(settings)
    asked = rules.honoured(call.retry_after)
    sent_at = pool.now - timedelta(seconds=time.monotonic() - call.sent)
    if pool.paused_until is not None and sent_at < pool.paused_until:
        # Sent before the host's pause was over: still the same event, which no agent is charged with.
        agents.drop_session(connection, agent_id)
        until = max(pool.paused_until, pool.now + timedelta(seconds=asked))
        agent_pool.pause_host(connection, until, pool.pause_seconds, pool.pause_level)
        return Throttling(pool.now, storm=True)
    rows = agents.read_agents(connection)
    resting = sum(row.status is AgentStatus.SUSPENDED and (row.reason or "").startswith(UNDECIDED) for row in rows)
    rests = call.own or resting < max(1, int(Decimal(str(settings.undecided_share)) * len(rows)))
    in_use = [a for a in agents.lock_agents(connection, [agent_id], rules) if a.status is AgentStatus.AVAILABLE]
    if rests:
        for agent in in_use:
            agent.throttled(asked, pool.now)
        agents.save_agents(connection, in_use, None)
    else:
        agents.drop_session(connection, agent_id)
    reason = (CHARGED if call.own else UNDECIDED) + call.url
    agents.record_429(connection, [agent.id.value for agent in in_use], reason, pool.now)
    verdict = _calm_storm(connection, settings, pool, asked, control=call.control)
    judge_breaker(connection, settings)
    return verdict


def charge_429s(connection: Connection, settings: Settings, url: str, retry_after: float | None) -> bool:
    """The URL was answered to another agent: whoever was refused it pays for that; True if it was a storm."""
    pool = agent_pool.read_pool(connection, lock=True)
    rules = agent_rules(settings)
    refused = _undecided(connection, url)
    if not refused:
        return False
    locked = agents.lock_agents(connection, refused, rules)
    in_use = [agent for agent in locked if agent.status is AgentStatus.AVAILABLE]
    for agent in in_use:
        agent.throttled(rules.honoured(retry_after), pool.now)
    agents.save_agents(connection, in_use, None)
    agents.record_429(connection, refused, CHARGED + url)
    verdict = _calm_storm(connection, settings, pool, rules.honoured(retry_after), control=False)
    judge_breaker(connection, settings)
    return verdict.storm


def give_back(connection: Connection, settings: Settings, url: str) -> None:
    """The 429s of this URL are charged to no agent: whoever was refused it works on."""
    agent_pool.read_pool(connection, lock=True)
    _give_back(connection, settings, _undecided(connection, url))


def _give_back(connection: Connection, settings: Settings, refused: Sequence[UUID]) -> None:
    locked = agents.lock_agents(connection, refused, agent_rules(settings))
    resting = [agent for agent in locked if agent.status is AgentStatus.SUSPENDED]
    for agent in resting:
        agent.give_back()
    agents.save_agents(connection, resting, None)
    agents.record_429(connection, refused, None)


def _recorded(connection: Connection) -> list[_Recorded]:
    """The last 429 of every agent, where it still counts."""
    found: list[_Recorded] = []
    for row in agents.read_429s(connection):
        for prefix in (CHARGED, UNDECIDED):
            if row.reason.startswith(prefix):
                found.append(_Recorded(row.agent_id, row.reason[len(prefix) :], prefix == CHARGED, row.throttled_at))
    return found


def _undecided(connection: Connection, url: str) -> list[UUID]:
    return [one.agent_id for one in _recorded(connection) if one.url == url and not one.charged]


def _calm_storm(
    connection: Connection, settings: Settings, pool: agent_pool.PoolRow, asked: float, *, control: bool
) -> Throttling:
    """Pause the host and give its agents back if it is the host that throttles.

    A 429 counts once it is known not to be its URL's own: that was answered to another agent, or a control is refused.
    """
    rules = storm_rules(settings)
    window = timedelta(seconds=rules.window_seconds)
    # Whoever was throttled longer ago has rested since.
    oldest = pool.now - max(window, timedelta(seconds=settings.suspend_seconds))
    if pool.paused_until is not None:
        oldest = max(oldest, pool.paused_until)
    good_at = agent_pool.last_good_answer(connection, oldest)
    since, row_since = max(oldest, pool.now - window), good_at or oldest
    recorded = _recorded(connection)
    counted = [one for one in recorded if one.charged or control]
    recent = _refused([one for one in counted if one.at > since])
    in_a_row = _refused([one for one in counted if one.at > row_since])
    answers = recent.answers + agent_pool.good_answers(connection, since)
    level, pause = next_pause(rules, pool, asked)
    # After a pause the first answer says whether it is over: no agent is charged with another 429.
    goes_on = control and level > 0 and good_at is None
    if not goes_on and not rules.is_storm(recent, answers=answers, in_a_row=in_a_row):
        return Throttling(pool.now, storm=False, others_answered_at=good_at)
    _give_back(connection, settings, [one.agent_id for one in recorded if one.at > min(since, row_since)])
    agent_pool.pause_host(connection, pool.now + timedelta(seconds=pause), pause, level)
    return Throttling(pool.now, storm=True)


def _refused(recorded: Sequence[_Recorded]) -> Refused:
    """What an agent was charged with counts for it; what may be a product's own fault counts once for the product."""
    return Refused(
        answers=len({one.agent_id if one.charged else one.subject for one in recorded}),
        agents=len({one.agent_id for one in recorded}),
        urls=len({one.subject for one in recorded}),
    )


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
