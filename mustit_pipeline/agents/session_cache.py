"""Session tokens: issued when missing, renewed before they expire, one issue at a time per agent."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import UUID, uuid4

import structlog
from sqlalchemy import Connection

from mustit_pipeline.agents.rules import agent_rules, storm_rules
from mustit_pipeline.agents.sql import agents
from mustit_pipeline.agents.sql.agents import SealedSession
from mustit_pipeline.agents.vault import SessionUnreadable, SessionVault
from mustit_pipeline.domain.states import AgentStatus
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.foundation.failures import FetchError, NetworkFailure, Throttled
from mustit_pipeline.marketplace.client import MarketplaceClient
from mustit_pipeline.marketplace.session import Session, issue_session
from mustit_pipeline.settings import Settings

# A token is renewed this long before it expires, or in the last fifth of a short lifetime.
RENEW_SECONDS, RENEW_SHARE = 300.0, 0.2
# A token is not used this close to its expiry, or in the last tenth of a short lifetime.
LAST_SECONDS, LAST_SHARE = 5.0, 0.1
ISSUES_AT_ONCE = 10
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 30.0
BUSY_SECONDS = 0.25
log = structlog.get_logger(__name__)

NO_TOKEN = "no token was issued {} times in a row"


@dataclass(frozen=True, slots=True)
class NoToken:
    """No token now; the next try may be after `seconds`."""

    seconds: float


JudgeThrottling = Callable[[UUID, float, float | None], Awaitable[object]]
"""The judge of a 429: called with the agent, the time of the request (monotonic), and the Retry-After."""


@dataclass(frozen=True, slots=True)
class _Held:
    token_no: int
    session: Session = field(repr=False)
    renew_at: float
    last_use: float


class SessionCache:
    """The sessions of this process, decrypted only while they are valid."""

    def __init__(
        self, settings: Settings, database: Database, client: MarketplaceClient, throttled: JudgeThrottling
    ) -> None:
        self._database = database
        self._client = client
        self._throttled = throttled
        self._vault = SessionVault(settings.token_keys())
        self._rules = agent_rules(settings)
        self._storm_rules = storm_rules(settings)
        self._lease = settings.total_timeout_seconds + BUSY_SECONDS + 5.0
        self._held: dict[UUID, _Held] = {}
        self._issuing: dict[UUID, asyncio.Task[Session | NoToken]] = {}
        self._calls: set[asyncio.Task[Session]] = set()
        self._closing = False
        self._at_once = asyncio.Semaphore(ISSUES_AT_ONCE)
        self._failures = 0
        # Agents that got an answer without a token since any agent got a token.
        self._unwell: set[UUID] = set()
        self._not_before = 0.0
        self.issued = 0
        self.trouble = "none yet"

    @property
    def is_pausing(self) -> bool:
        """Whether issues are paused because one has just failed."""
        return self._pause() > 0

    def use(self, agent_id: UUID, token_no: int, user_agent: str) -> Session | None:
        """Use the session in memory, if it is the agent's newest; shortly before it expires, a renewal is started."""
        held = self._held.get(agent_id)
        # A dropped token's number is never reused, so a higher number always means a newer session.
        if held is None or held.token_no < token_no:
            return None
        now = time.time()
        if now >= held.last_use:
            del self._held[agent_id]
            return None
        if now >= held.renew_at and agent_id not in self._issuing and self._pause() <= 0 and not self.doubts(agent_id):
            self._start_issue(agent_id, user_agent)
        return held.session

    def doubts(self, agent_id: UUID) -> bool:
        """Whether this agent just got no token, so that another agent should be tried to find the fault."""
        return agent_id in self._unwell and len(self._unwell) < self._storm_rules.agents

    def load_all(self) -> None:
        """Hold every stored session that is still good: one by one they would cost a transaction each.

        One that is sealed with an older key is sealed anew when it is first used.
        """
        with self._database.reading() as connection:
            stored = agents.read_sessions(connection)
        for agent_id, sealed in stored.items():
            if not self._vault.is_outdated(sealed):
                self._hold_stored(agent_id, sealed)

    async def obtain(self, agent_id: UUID, user_agent: str) -> Session | NoToken:
        """The stored session, or a new one."""
        session = await asyncio.to_thread(self._load, agent_id)
        if session is not None:
            return session
        return await self.renew(agent_id, user_agent)

    async def renew(self, agent_id: UUID, user_agent: str) -> Session | NoToken:
        """A new session; the present one is kept until then."""
        pause = self._pause()
        if pause > 0:
            return NoToken(pause)
        # Shielded: other tasks may wait for the same token, and the request has been sent already.
        return await asyncio.shield(self._issuing.get(agent_id) or self._start_issue(agent_id, user_agent))

    def number(self, agent_id: UUID) -> int:
        """The number of the token in memory."""
        held = self._held.get(agent_id)
        return 0 if held is None else held.token_no

    def drop(self, agent_id: UUID) -> None:
        """Drop the session in memory."""
        self._held.pop(agent_id, None)

    async def close(self) -> None:
        """Cancel the running calls, whose results are not needed, and drop every session."""
        self._closing = True
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._issuing.values(), return_exceptions=True)
        self._held.clear()

    def _pause(self) -> float:
        return self._not_before - time.monotonic()

    def _start_issue(self, agent_id: UUID, user_agent: str) -> "asyncio.Task[Session | NoToken]":
        task = asyncio.create_task(self._issue(agent_id, user_agent))
        self._issuing[agent_id] = task
        task.add_done_callback(lambda done: self._ended(agent_id, done))
        return task

    def _ended(self, agent_id: UUID, task: "asyncio.Task[Session | NoToken]") -> None:
        self._issuing.pop(agent_id, None)
        if not task.cancelled() and task.exception() is not None:
            log.warning("a token could not be stored", agent=str(agent_id), error=type(task.exception()).__name__)

    async def _issue(self, agent_id: UUID, user_agent: str) -> Session | NoToken:
        async with self._at_once:
            # If other issues failed while this one waited, it is not sent either.
            pause = self._pause()
            if pause > 0 or self._closing:
                return NoToken(max(pause, 0.0))
            owner, known = uuid4(), self.number(agent_id)
            token_no, present = await asyncio.to_thread(self._claim, agent_id, owner)
            if token_no is None:
                return NoToken(BUSY_SECONDS)
            asked = time.monotonic()
            try:
                # Another worker may have stored one between our look and our claim.
                newer = None if present is None or present.token_no <= known else self._hold_stored(agent_id, present)
                if newer is not None:
                    await asyncio.to_thread(self._give_back, agent_id, owner)
                    return newer
                session = await self._call(user_agent)
                sealed = self._vault.seal(agent_id, token_no, session)
                stored = await asyncio.to_thread(self._store, agent_id, owner, sealed, session.expires_at)
            except FetchError as error:
                failed = await self._failed(agent_id, owner, error)
                if isinstance(error, Throttled):
                    await self._throttled(agent_id, asked, error.retry_after)
                return failed
            except BaseException:
                await asyncio.shield(asyncio.to_thread(self._give_back, agent_id, owner))
                raise
        self._failures = 0
        self._unwell.clear()
        if not (stored and self._hold(agent_id, token_no, session)):
            return NoToken(BUSY_SECONDS)
        self.issued += 1
        return session

    async def _call(self, user_agent: str) -> Session:
        """The marketplace's answer, unless the cache is closed first."""
        call = asyncio.create_task(issue_session(self._client, user_agent, datetime.now(UTC)))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        if self._closing:
            call.cancel()
        return await call

    async def _failed(self, agent_id: UUID, owner: UUID, error: FetchError) -> NoToken:
        self.trouble = error.english
        pause = self._pause()
        # Issues that ran at the same time fail together, so the pause is set once.
        if pause <= 0:
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(self._failures, 20))
            self._failures += 1
            self._not_before = time.monotonic() + pause
        # A 429 or no answer is not charged to this agent: an outage must not block the pool.
        counts = not isinstance(error, Throttled | NetworkFailure)
        if counts:
            self._unwell.add(agent_id)
        blocked = await asyncio.to_thread(self._note_failure, agent_id, owner, counts, frozenset(self._unwell))
        log.warning("no token was issued", agent=str(agent_id), code=error.code, blocked=blocked, pause=pause)
        return NoToken(pause)

    def _hold(self, agent_id: UUID, token_no: int, session: Session) -> bool:
        """Keep a session in memory; False if it is too close to its expiry."""
        expires, life = session.expires_at.timestamp(), session.lifetime.total_seconds()
        held = _Held(
            token_no,
            session,
            renew_at=expires - min(RENEW_SECONDS, RENEW_SHARE * life),
            last_use=expires - min(LAST_SECONDS, LAST_SHARE * life),
        )
        if time.time() >= held.last_use:
            return False
        self._held[agent_id] = held
        return True

    def _load(self, agent_id: UUID) -> Session | None:
        """The stored session."""
        with self._database.reading() as connection:
            stored = agents.read_session(connection, agent_id)
        if stored is None:
            return None
        session = self._hold_stored(agent_id, stored)
        if session is not None and self._vault.is_outdated(stored):
            self._reseal(agent_id, stored, session)
        return session

    def _hold_stored(self, agent_id: UUID, stored: SealedSession) -> Session | None:
        """A stored session, held from now on, if it can be read and is not too close to its end."""
        try:
            session = self._vault.open(agent_id, stored)
        except SessionUnreadable as error:
            log.warning("a stored session is replaced", why=str(error))
            return None
        return session if self._hold(agent_id, stored.token_no, session) else None

    def _reseal(self, agent_id: UUID, stored: SealedSession, session: Session) -> None:
        sealed = self._vault.seal(agent_id, stored.token_no, session)
        with self._database.transaction() as connection:
            for agent in agents.lock_agents(connection, [agent_id], self._rules):
                agents.store_session(connection, agent_id, sealed, agent, resealed=True)

    def _claim(self, agent_id: UUID, owner: UUID) -> tuple[int | None, SealedSession | None]:
        """The number of the next token, if it is ours to ask for, and the session that is stored now."""
        with self._database.transaction() as connection:
            token_no = agents.claim_issue(connection, agent_id, owner, self._lease)
            return token_no, agents.read_session(connection, agent_id)

    def _give_back(self, agent_id: UUID, owner: UUID) -> None:
        with self._database.transaction() as connection:
            agents.release_issue(connection, agent_id, owner)

    def _store(self, agent_id: UUID, owner: UUID, sealed: SealedSession, expires_at: datetime) -> bool:
        with self._database.transaction() as connection:
            # An agent that was suspended or blocked meanwhile gets another token later.
            for agent in self._end_issue(connection, agent_id, owner):
                agent.issued(expires_at)
                return agents.store_session(connection, agent_id, sealed, agent)
        return False

    def _note_failure(self, agent_id: UUID, owner: UUID, counts: bool, unwell: frozenset[UUID]) -> bool:
        """Charge the failure to the agent, or to none if it is an outage; returns whether the agent is now blocked."""
        with self._database.transaction() as connection:
            if agent_id in unwell and self._is_outage(connection, unwell):
                self._excuse(connection, unwell)
                counts = False
            for agent in self._end_issue(connection, agent_id, owner):
                if counts:
                    agent.issue_failed()
                    reason = NO_TOKEN.format(agent.issue_failures)
                    agents.save_agents(connection, [agent], reason)
                return agent.status is AgentStatus.BLOCKED
        return False

    def _is_outage(self, connection: Connection, unwell: frozenset[UUID]) -> bool:
        available = sum(row.status is AgentStatus.AVAILABLE for row in agents.read_agents(connection))
        return self._storm_rules.is_outage(agents=len(unwell), available=available)

    def _excuse(self, connection: Connection, unwell: frozenset[UUID]) -> None:
        locked = agents.lock_agents(connection, unwell, self._rules)
        excused = [agent for agent in locked if agent.issue_failures and agent.status is AgentStatus.AVAILABLE]
        for agent in excused:
            agent.issue_excused()
        agents.save_agents(connection, excused, None)

    def _end_issue(self, connection: Connection, agent_id: UUID, owner: UUID) -> list[agents.UserAgent]:
        """End our issue; the agent, locked, if it was still ours."""
        locked = agents.lock_agents(connection, [agent_id], self._rules)
        if not agents.release_issue(connection, agent_id, owner):
            return []
        return [agent for agent in locked if agent.status is AgentStatus.AVAILABLE]
