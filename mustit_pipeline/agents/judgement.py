"""Judgement of answers: health, suspension, storms, the breaker; all inside the caller's transaction."""

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

# The reason in an agent's row names the URL of its last 429: so workers know of each other's 429s.
CHARGED = "throttled by the marketplace: "
UNDECIDED = "throttled, and it may be the URL's fault: "
# As many 429s as in a storm, but no control call got one yet: in any case no agent is charged.
WITH_MANY = "throttled with many others: "
UNWELL = "too many failed calls"


class Outcome(Enum):
    """How a booked request ended; a 429 is reported to `AgentPool.throttled` instead."""

    SUCCESS = "success"
    SERVER_ERROR = "server error"
    FAILED = "failed"
    UNAUTHORIZED = "unauthorized"
    # Sent without an answer: the marketplace may receive and count it later, at an unknown time.
    LOST = "lost"
    # The same, but the worker cancelled it: not the agent's fault.
    ABANDONED = "abandoned"
    NOT_SENT = "not sent"


@dataclass(frozen=True, slots=True)
class Throttling:
    """The judgement of a 429: whether it was part of a storm, and when the host last answered another call well."""

    judged_at: datetime
    storm: bool
    others_answered_at: datetime | None = None

    def others_answered_since(self, earlier: "Throttling") -> bool:
        """Whether the host had answered another call since an earlier 429 to the same URL."""
        return self.others_answered_at is not None and self.others_answered_at > earlier.judged_at


@dataclass(frozen=True, slots=True)
class Call429:
    """A call that got a 429: when it was sent (on this process's monotonic clock), and its URL.

    A `control` call tests the host: if it gets a 429 too, the URLs of the earlier 429s are not at fault. An `own` call
    was for the agent alone (its token), so the agent is charged.
    """

    sent: float
    retry_after: float | None
    url: str
    control: bool = False
    own: bool = False


@dataclass(frozen=True, slots=True)
class _Recorded:
    """An agent's last 429, and its judgement."""

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
    """A failed request, its token, and whether it is charged to its agent."""

    agent_id: UUID
    outcome: Outcome
    token_no: int
    charged: bool = True


def judge(
    connection: Connection, settings: Settings, successes: Mapping[UUID, int], failures: Iterable[Failure]
) -> None:
    """Apply answers to the agents' health; an agent below the floor is suspended, and the breaker is judged again."""
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
    """Judge one 429, to a booking that is written or to a call for a token.

    The agent is suspended at once, though the URL may be at fault. Only a small share of the pool is suspended on
    suspicion; further agents are charged when another agent gets an answer for the URL.
    """
    pool = agent_pool.read_pool(connection, lock=True)
    rules = agent_rules(settings)
    asked = rules.honoured(call.retry_after)
    sent_at = pool.now - timedelta(seconds=time.monotonic() - call.sent)
    if pool.paused_until is not None and sent_at < pool.paused_until:
        # Sent before the host's pause was over: part of the same storm, so no agent is charged.
        agents.drop_session(connection, agent_id)
        until = max(pool.paused_until, pool.now + timedelta(seconds=asked))
        agent_pool.pause_host(connection, until, pool.pause_seconds, pool.pause_level)
        return Throttling(pool.now, storm=True)
    known = _lock_throttled(connection, rules, agent_id)
    resting = sum(
        known[entry.agent_id].status is AgentStatus.SUSPENDED and not entry.charged for entry in _recorded(connection)
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
    """Another agent got an answer for the URL: charge its 429s to their agents, unless many agents got 429s then."""
    pool = agent_pool.read_pool(connection, lock=True)
    rules = agent_rules(settings)
    known = _lock_throttled(connection, rules)
    asked = rules.honoured(retry_after)
    if _calm_storm(connection, settings, pool, asked, answered=url).storm:
        return
    refused = _undecided(connection, url)
    _give_back(connection, settings, [entry.agent_id for entry in refused if entry.known == WITH_MANY])
    paying = [entry.agent_id for entry in refused if entry.known == UNDECIDED]
    in_use = [known[agent_id] for agent_id in paying if known[agent_id].status is AgentStatus.AVAILABLE]
    for agent in in_use:
        agent.throttled(asked, pool.now)
    agents.save_agents(connection, in_use, None)
    agents.record_429(connection, paying, CHARGED + url)
    judge_breaker(connection, settings)


def give_back(connection: Connection, settings: Settings, url: str) -> None:
    """Charge this URL's 429s to no agent: their suspensions end."""
    agent_pool.read_pool(connection, lock=True)
    _lock_throttled(connection, agent_rules(settings))
    _give_back(connection, settings, [entry.agent_id for entry in _undecided(connection, url)])


def _lock_throttled(connection: Connection, rules: AgentRules, *more: UUID) -> dict[UUID, UserAgent]:
    """Lock all agents that a judgement of 429s may change at once, so that agents are always locked in one order."""
    ids = {*more, *(entry.agent_id for entry in _recorded(connection))}
    return {agent.id.value: agent for agent in agents.lock_agents(connection, ids, rules)}


def _give_back(connection: Connection, settings: Settings, refused: Sequence[UUID]) -> None:
    locked = agents.lock_agents(connection, refused, agent_rules(settings))
    resting = [agent for agent in locked if agent.status is AgentStatus.SUSPENDED]
    for agent in resting:
        agent.give_back()
    agents.save_agents(connection, resting, None)
    agents.record_429(connection, refused, None)


def _recorded(connection: Connection) -> list[_Recorded]:
    """The last 429 of every agent, if it still counts."""
    return [
        _Recorded(row.agent_id, known, row.reason[len(known) :], row.throttled_at)
        for row in agents.read_429s(connection)
        for known in (CHARGED, UNDECIDED, WITH_MANY)
        if row.reason.startswith(known)
    ]


def _undecided(connection: Connection, url: str) -> list[_Recorded]:
    return [entry for entry in _recorded(connection) if entry.url == url and not entry.charged]


def _calm_storm(
    connection: Connection,
    settings: Settings,
    pool: agent_pool.PoolRow,
    asked: float,
    *,
    control: bool = False,
    answered: str | None = None,
) -> Throttling:
    """If the host itself throttles, pause all calls and end the suspensions of its agents.

    Products that always get a 429 look the same. So it is a storm only if a control call gets a 429 too, or if the 429s
    that cannot be their URLs' fault are enough: those charged to agents, and those of the URL `answered` now.
    """
    rules = storm_rules(settings)
    window = timedelta(seconds=rules.window_seconds)
    # The suspension of agents throttled earlier is over.
    oldest = pool.now - max(window, timedelta(seconds=settings.suspend_seconds))
    if pool.paused_until is not None:
        oldest = max(oldest, pool.paused_until)
    good_at = agent_pool.last_good_answer(connection, oldest)
    since, row_since = max(oldest, pool.now - window), good_at or oldest
    recorded = [entry for entry in _recorded(connection) if entry.at > min(since, row_since)]
    good = agent_pool.good_answers(connection, since)

    def is_storm(counted: Sequence[_Recorded]) -> bool:
        recent = _refused([entry for entry in counted if entry.at > since])
        in_a_row = _refused([entry for entry in counted if entry.at > row_since])
        return rules.is_storm(recent, answers=recent.answers + good, in_a_row=in_a_row)

    level, pause = next_pause(rules, pool, asked)
    are_many = is_storm(recorded)
    # After a pause the first control call shows whether the storm is over: no agent is charged for another 429.
    goes_on = level > 0 and good_at is None
    if (control and (are_many or goes_on)) or is_storm(
        [entry for entry in recorded if entry.charged or entry.url == answered]
    ):
        _give_back(connection, settings, [entry.agent_id for entry in recorded])
        agent_pool.pause_host(connection, pool.now + timedelta(seconds=pause), pause, level)
        return Throttling(pool.now, storm=True)
    if are_many:
        for entry in recorded:
            if entry.known == UNDECIDED:
                agents.record_429(connection, [entry.agent_id], WITH_MANY + entry.url)
    return Throttling(pool.now, storm=False, others_answered_at=good_at)


def _refused(recorded: Sequence[_Recorded]) -> Refused:
    """A charged 429 counts per agent; a 429 that may be a product's fault counts once per product."""
    return Refused(
        answers=len({entry.agent_id if entry.charged else entry.subject for entry in recorded}),
        agents=len({entry.agent_id for entry in recorded}),
        urls=len({entry.subject for entry in recorded}),
    )


def next_pause(rules: StormRules, pool: agent_pool.PoolRow, asked: float) -> tuple[int, float]:
    """The level and length of the host's next pause: twice the last one unless the host was calm since."""
    level = 0
    if pool.paused_until is not None:
        since = (pool.now - pool.paused_until).total_seconds()
        level = rules.next_level(pool.pause_level, last_pause=pool.pause_seconds, since_pause=since)
    return level, rules.pause(level, asked)


def judge_breaker(connection: Connection, settings: Settings) -> bool:
    """Open the breaker if too few agents are AVAILABLE; the caller holds the shared row's lock."""
    return agent_pool.open_breaker_if_few(connection, settings.breaker_min_available, settings.breaker_cooldown_seconds)
