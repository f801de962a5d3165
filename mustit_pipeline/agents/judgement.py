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
from mustit_pipeline.agents.sql import agent_pool, agents
from mustit_pipeline.domain.limits import HEALTH_MAX
from mustit_pipeline.domain.states import AgentStatus
from mustit_pipeline.domain.storm import Refused, StormRules, product_of
from mustit_pipeline.domain.user_agent import AgentRules, UserAgent
from mustit_pipeline.settings import Settings

# The reasons in an agent's row name the URL of its last 429: that is how workers know of each other's.
CHARGED = "throttled by the marketplace: "
UNDECIDED = "throttled, and it may be the URL's fault: "
# As many 429s as in a storm, but no control was refused yet: whatever it was, no agent pays for it.
WITH_MANY = "throttled with many others: "
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
    """An agent's last 429, and what is known of it."""

    agent_id: UUID
    known: str
    url: str
    at: datetime

    @property
    def charged(self) -> bool:
        return self.known == CHARGED

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
    known = _lock_throttled(connection, rules, agent_id)
    resting = sum(
        known[one.agent_id].status is AgentStatus.SUSPENDED and not one.charged for one in _recorded(connection)
    )
    share = Decimal(str(settings.undecided_share))
    rests = call.own or resting < max(1, int(share * agents.count_agents(connection)))
    in_use = [agent for agent in (known.get(agent_id),) if agent and agent.status is AgentStatus.AVAILABLE]
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


def charge_429s(connection: Connection, settings: Settings, url: str, retry_after: float | None) -> None:
    """The URL was answered to another agent: those that were refused it pay, unless many others were as well."""
    pool = agent_pool.read_pool(connection, lock=True)
    rules = agent_rules(settings)
    known = _lock_throttled(connection, rules)
    asked = rules.honoured(retry_after)
    if _calm_storm(connection, settings, pool, asked, answered=url).storm:
        return
    refused = _undecided(connection, url)
    _give_back(connection, settings, [one.agent_id for one in refused if one.known == WITH_MANY])
    paying = [one.agent_id for one in refused if one.known == UNDECIDED]
    in_use = [known[agent_id] for agent_id in paying if known[agent_id].status is AgentStatus.AVAILABLE]
    for agent in in_use:
        agent.throttled(asked, pool.now)
    agents.save_agents(connection, in_use, None)
    agents.record_429(connection, paying, CHARGED + url)
    judge_breaker(connection, settings)


def give_back(connection: Connection, settings: Settings, url: str) -> None:
    """The 429s of this URL are charged to no agent: those that were refused it work on."""
    agent_pool.read_pool(connection, lock=True)
    _lock_throttled(connection, agent_rules(settings))
    _give_back(connection, settings, [one.agent_id for one in _undecided(connection, url)])


def _lock_throttled(connection: Connection, rules: AgentRules, *more: UUID) -> dict[UUID, UserAgent]:
    """The agents that a judgement of 429s may change, all at once: agents are locked in one order."""
    ids = {*more, *(one.agent_id for one in _recorded(connection))}
    return {agent.id.value: agent for agent in agents.lock_agents(connection, ids, rules)}


def _give_back(connection: Connection, settings: Settings, refused: Sequence[UUID]) -> None:
    locked = agents.lock_agents(connection, refused, agent_rules(settings))
    resting = [agent for agent in locked if agent.status is AgentStatus.SUSPENDED]
    for agent in resting:
        agent.give_back()
    agents.save_agents(connection, resting, None)
    agents.record_429(connection, refused, None)


def _recorded(connection: Connection) -> list[_Recorded]:
    """The last 429 of every agent, where it still counts."""
    return [
        _Recorded(row.agent_id, known, row.reason[len(known) :], row.throttled_at)
        for row in agents.read_429s(connection)
        for known in (CHARGED, UNDECIDED, WITH_MANY)
        if row.reason.startswith(known)
    ]


def _undecided(connection: Connection, url: str) -> list[_Recorded]:
    return [one for one in _recorded(connection) if one.url == url and not one.charged]


def _calm_storm(
    connection: Connection,
    settings: Settings,
    pool: agent_pool.PoolRow,
    asked: float,
    *,
    control: bool = False,
    answered: str | None = None,
) -> Throttling:
    """Pause the host and give its agents back if it is the host that throttles.

    Products that are always throttled look the same: it is a storm once a control is refused too, or the 429s that
    agents were charged with, and those of the URL that is `answered` now, are enough: these are not their URLs' own.
    """
    rules = storm_rules(settings)
    window = timedelta(seconds=rules.window_seconds)
    # Whoever was throttled longer ago has rested since.
    oldest = pool.now - max(window, timedelta(seconds=settings.suspend_seconds))
    if pool.paused_until is not None:
        oldest = max(oldest, pool.paused_until)
    good_at = agent_pool.last_good_answer(connection, oldest)
    since, row_since = max(oldest, pool.now - window), good_at or oldest
    recorded = [one for one in _recorded(connection) if one.at > min(since, row_since)]
    good = agent_pool.good_answers(connection, since)

    def is_storm(counted: Sequence[_Recorded]) -> bool:
        recent = _refused([one for one in counted if one.at > since])
        in_a_row = _refused([one for one in counted if one.at > row_since])
        return rules.is_storm(recent, answers=recent.answers + good, in_a_row=in_a_row)

    level, pause = next_pause(rules, pool, asked)
    are_many = is_storm(recorded)
    # After a pause the first control says whether it is over: no agent is charged with another 429.
    goes_on = level > 0 and good_at is None
    if (control and (are_many or goes_on)) or is_storm([one for one in recorded if one.charged or one.url == answered]):
        _give_back(connection, settings, [one.agent_id for one in recorded])
        agent_pool.pause_host(connection, pool.now + timedelta(seconds=pause), pause, level)
        return Throttling(pool.now, storm=True)
    if are_many:
        for one in recorded:
            if one.known == UNDECIDED:
                agents.record_429(connection, [one.agent_id], WITH_MANY + one.url)
    return Throttling(pool.now, storm=False, others_answered_at=good_at)


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
