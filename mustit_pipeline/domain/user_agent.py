"""One user agent of the pool: how healthy it is and whether it may be used."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from mustit_pipeline.domain import limits
from mustit_pipeline.domain.aggregate import Aggregate
from mustit_pipeline.domain.errors import InvariantViolated, ValidationFailed
from mustit_pipeline.domain.limits import HEALTH_MAX, HEALTH_MIN
from mustit_pipeline.domain.states import AGENT, AgentStatus
from mustit_pipeline.domain.values import UserAgentId, has_control_characters


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRules:
    """How answers change an agent's health, when and how long it is suspended, and when it is blocked."""

    gain_success: int = limits.HEALTH_GAIN_SUCCESS
    cost_throttled: int = limits.HEALTH_COST_THROTTLED
    cost_server_error: int = limits.HEALTH_COST_SERVER_ERROR
    cost_failure: int = limits.HEALTH_COST_FAILURE
    floor: int = limits.HEALTH_FLOOR
    recovered: int = limits.HEALTH_RECOVERED
    suspend_seconds: float = limits.SUSPEND_SECONDS
    longest_retry_after_seconds: float = limits.LONGEST_RETRY_AFTER_SECONDS
    issue_failures: int = limits.TOKEN_ISSUE_FAILURES

    def honoured(self, retry_after: float | None) -> float:
        """The seconds of a Retry-After that are honoured: 0 for NaN or negative values, and at most the limit."""
        # Written so that a NaN, which compares as false, counts as nothing.
        if retry_after is None or not retry_after > 0:
            return 0.0
        return min(retry_after, self.longest_retry_after_seconds)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UserAgent(Aggregate):
    """An agent's health and status by the answers it gets, and when its token expires."""

    id: UserAgentId
    user_agent: str
    status: AgentStatus = AgentStatus.AVAILABLE
    health: int = HEALTH_MAX
    suspended_until: datetime | None = None
    token_expires_at: datetime | None = None
    issue_failures: int = 0
    rules: AgentRules = AgentRules()

    def __post_init__(self) -> None:
        # It is sent in a header: a line break would forge another header.
        if not self.user_agent.strip() or has_control_characters(self.user_agent):
            raise ValidationFailed(
                "VALIDATION_USER_AGENT",
                korean="User-Agent는 비어있거나 제어 문자를 포함할 수 없습니다",
                english="A user agent cannot be blank or contain control characters",
            )

    def success(self) -> None:
        """A good answer."""
        self._judge(self.rules.gain_success)

    def server_error(self, now: datetime) -> None:
        """A 5xx answer."""
        self._judge(-self.rules.cost_server_error)
        self._rest_if_unwell(now)

    def failure(self, now: datetime) -> None:
        """Any other failed call."""
        self._judge(-self.rules.cost_failure)
        self._rest_if_unwell(now)

    def throttled(self, retry_after: float | None, now: datetime) -> None:
        """A 429 answer: suspend for the longer of our pause and the host's Retry-After, and drop the token."""
        self._judge(-self.rules.cost_throttled)
        self._set(token_expires_at=None)
        self._rest(now, max(self.rules.suspend_seconds, self.rules.honoured(retry_after)))

    def issued(self, expires_at: datetime) -> None:
        """It has a new token."""
        self._set(token_expires_at=expires_at, issue_failures=0)

    def issue_failed(self) -> None:
        """No token was issued; too many failures in a row block the agent until an admin unblocks it."""
        self._set(issue_failures=self.issue_failures + 1)
        if self.issue_failures >= self.rules.issue_failures and self.status is not AgentStatus.BLOCKED:
            self.block()

    def issue_excused(self) -> None:
        """The host issued no agent a token: not this agent's fault."""
        self._set(issue_failures=0)

    def is_recoverable(self, now: datetime) -> bool:
        """Whether its suspension is over."""
        rested = self.suspended_until is None or self.suspended_until <= now
        return self.status in AGENT.sources("recover") and rested

    def recover(self, now: datetime) -> None:
        """Available again after its suspension, with reduced health and without a token."""
        status = AGENT.move(self.status, "recover")
        if not self.is_recoverable(now):
            raise InvariantViolated(
                "INVARIANT_AGENT_RESTING",
                korean="정지 시간이 끝난 후에만 복구할 수 있습니다",
                english="An agent can only be recovered after its suspension has ended",
            )
        self._return(status, self.rules.recovered)

    def give_back(self) -> None:
        """Its 429 was the host's or the URL's fault: available at once, and the lost health is restored."""
        status = AGENT.move(self.status, "recover")
        self._return(status, max(self.rules.floor, min(HEALTH_MAX, self.health + self.rules.cost_throttled)))

    def block(self) -> None:
        """Do not use it until an admin unblocks it."""
        self._set(status=AGENT.move(self.status, "block"), suspended_until=None, token_expires_at=None)

    def unblock(self) -> None:
        """An admin lets it work again, with reduced health and without a token."""
        self._return(AGENT.move(self.status, "unblock"), self.rules.recovered)

    def _judge(self, change: int) -> None:
        self._set(health=max(HEALTH_MIN, min(HEALTH_MAX, self.health + change)))

    def _rest_if_unwell(self, now: datetime) -> None:
        if self.health < self.rules.floor:
            self._rest(now, self.rules.suspend_seconds)

    def _rest(self, now: datetime, seconds: float) -> None:
        # An answer may arrive after an admin has blocked the agent: it stays blocked.
        if self.status is AgentStatus.BLOCKED:
            return
        until = now + timedelta(seconds=seconds)
        if self.suspended_until is not None:
            until = max(until, self.suspended_until)
        self._set(status=AGENT.move(self.status, "suspend"), suspended_until=until)

    def _return(self, status: AgentStatus, health: int) -> None:
        self._set(status=status, health=health, suspended_until=None, token_expires_at=None, issue_failures=0)
