"""The pool of user agents that a crawl works with: a booked agent with a valid session, or when there will be one."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import Any, Self
from uuid import UUID, uuid4

import structlog
from msgspec import Struct, structs
from sqlalchemy import Connection

from mustit_pipeline.agents import judgement, roster
from mustit_pipeline.agents.judgement import Call429, Failure, Outcome, Throttling
from mustit_pipeline.agents.limiter import FreeIn, Slot
from mustit_pipeline.agents.rules import hold_of, limits_of
from mustit_pipeline.agents.session_cache import SessionCache
from mustit_pipeline.agents.shared_limiter import SharedLimiter
from mustit_pipeline.agents.sql import agent_pool
from mustit_pipeline.agents.sql.agent_pool import PoolRow
from mustit_pipeline.agents.sql.agents import AgentRow, read_agents
from mustit_pipeline.domain.limits import HEALTH_MAX
from mustit_pipeline.domain.states import AgentStatus
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.marketplace.client import MarketplaceClient
from mustit_pipeline.marketplace.session import Session
from mustit_pipeline.settings import Settings

__all__ = ["AgentPool", "Booking", "Outcome", "Throttling", "Wait", "WaitReason"]

TICK_SECONDS = 0.5
# News of many agents within this time, as of their first tokens, are read once.
SHORTEST_TICK_SECONDS = 0.1
NO_AGENTS_SECONDS = 60.0
TRIAL_SECONDS = 1.0
MOST_TRIES = 64
log = structlog.get_logger(__name__)


class Booking(Struct, frozen=True):
    """One request that may be sent now, and no later than `send_before` on this process's monotonic clock."""

    agent_id: UUID
    user_agent: str
    session: Session
    booking_id: UUID
    send_before: float


class WaitReason(Enum):
    """Why no request may be sent."""

    LIMIT = "limit"
    BREAKER = "breaker"
    HOST_PAUSED = "host paused"
    NO_AGENTS = "no agents"
    NO_TOKEN = "no token"


@dataclass(frozen=True, slots=True)
class Wait:
    """No request may be sent for so many seconds."""

    seconds: float
    reason: WaitReason


class _Open(Struct, frozen=True):
    slot: Slot
    token_no: int
    trial: UUID | None


class _Unequipped(Enum):
    """Why a slot became no booking: it has no session, or the request could outlive its booking by now."""

    NO_TOKEN = "no token"
    TOO_LATE = "too late"


class AgentPool:
    """Agents, limits, tokens, health and breaker behind two calls: `acquire`, and `settle` or `record_429`."""

    def __init__(
        self, settings: Settings, database: Database, client: MarketplaceClient, *, redis_url: str | None
    ) -> None:
        self._settings = settings
        self._database = database
        self._limiter = SharedLimiter(database, limits_of(settings), hold_of(settings), redis_url)
        self._sessions = SessionCache(settings, database, client, self._throttle_token)
        self._agents: dict[UUID, AgentRow] = {}
        self._open: dict[UUID, _Open] = {}
        self._successes: Counter[UUID] = Counter()
        self._wanted = asyncio.Event()
        self._closing = False
        self._ticking: asyncio.Task[None] | None = None
        self._errands: set[asyncio.Task[Any]] = set()

    @property
    def counter(self) -> str:
        """Who counts the requests: `redis`, `postgres`, or `moving`."""
        return self._limiter.counter

    @property
    def token_trouble(self) -> str:
        """Why the last agent that asked for a token got none."""
        return self._sessions.trouble

    async def __aenter__(self) -> Self:
        await self._limiter.start()
        await self._refresh()
        await asyncio.to_thread(self._sessions.load_all)
        self._ticking = asyncio.create_task(self._tick())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing = True
        self._wanted.set()
        if self._ticking is not None:
            await self._ticking
        await self._sessions.close()
        await asyncio.gather(*self._errands, return_exceptions=True)
        try:
            await self._flush()
        finally:
            await self._limiter.close()

    async def acquire(self) -> Booking | Wait:
        """An agent with a valid session, booked for one request; or how long to wait before asking again."""
        open_for = self._seconds_until(lambda pool: pool.breaker_open_until)
        if open_for is None:
            return await self._book(None)
        return self._paused() or (Wait(open_for, WaitReason.BREAKER) if open_for > 0 else await self._book_trial())

    async def renew(self, booking: Booking) -> Booking | Wait:
        """The same booking with a new session; without one it is given back."""
        try:
            found = await self._sessions.renew(booking.agent_id, booking.user_agent)
        except BaseException:
            await asyncio.shield(self.settle(booking, Outcome.NOT_SENT))
            raise
        if not isinstance(found, Session) or time.monotonic() > booking.send_before - 1.0:
            await asyncio.shield(self.settle(booking, Outcome.NOT_SENT))
            return Wait(0.0 if isinstance(found, Session) else found.seconds, WaitReason.NO_TOKEN)
        self._wanted.set()
        entry = self._open[booking.booking_id]
        self._open[booking.booking_id] = structs.replace(entry, token_no=self._sessions.number(booking.agent_id))
        return structs.replace(booking, session=found)

    async def settle(self, booking: Booking, outcome: Outcome, *, charged: bool = True) -> None:
        """How the request ended: its slot frees one window from now, at once if never sent, late if that is unknown.

        A failure that is not `charged` to its agent costs it no health.
        """
        entry = self._open.pop(booking.booking_id, None)
        if entry is None:
            return
        if outcome is Outcome.NOT_SENT:
            await self._limiter.withdraw(entry.slot, 0.0)
        elif outcome in (Outcome.LOST, Outcome.ABANDONED):
            self._limiter.leave(entry.slot)
        else:
            await self._limiter.settle(entry.slot)
        if outcome is Outcome.SUCCESS:
            known = self._agents.get(booking.agent_id)
            if known is None or known.health < HEALTH_MAX:
                self._successes[booking.agent_id] += 1
        elif outcome not in (Outcome.NOT_SENT, Outcome.ABANDONED):
            await self._judge_failure(Failure(booking.agent_id, outcome, entry.token_no, charged))
        if entry.trial is not None:
            undecided = outcome in (Outcome.NOT_SENT, Outcome.ABANDONED, Outcome.UNAUTHORIZED)
            await self._end_trial(entry.trial, good=None if undecided else outcome is Outcome.SUCCESS)

    async def record_429(
        self, booking: Booking, retry_after: float | None, *, url: str, control: bool = False
    ) -> Throttling | None:
        """The request for this URL was answered with 429; what that was, unless the booking had ended before.

        Once it is known whose fault that is, `charge_429s` or `give_back` says so. A `control` is a call by which the
        host is judged.
        """
        entry = self._open.pop(booking.booking_id, None)
        if entry is None:
            return None
        await self._limiter.settle(entry.slot, throttled=True)
        verdict = await self._throttle(booking.agent_id, Call429(entry.slot.booked, retry_after, url, control))
        if entry.trial is not None:
            # A URL that is always throttled would keep the breaker open: the control that follows is the next trial.
            await self._end_trial(entry.trial, good=False if control or verdict.storm else None)
        return verdict

    async def charge_429s(self, url: str, retry_after: float | None) -> None:
        """This URL was answered: the agents that it was refused to before rest, if they do not yet."""
        await self._database.transact(
            lambda connection: judgement.charge_429s(connection, self._settings, url, retry_after)
        )
        await self._refresh()

    async def give_back(self, url: str) -> None:
        """The 429s of this URL were not their agents' fault."""
        await self._database.transact(lambda connection: judgement.give_back(connection, self._settings, url))
        await self._refresh()

    async def _book_trial(self) -> Booking | Wait:
        """The breaker's pause is over: one request of all workers shows whether it closes."""
        trial, hold = uuid4(), hold_of(self._settings)
        if (self._seconds_until(lambda pool: pool.trial_until) or 0.0) > 0 or not await self._database.transact(
            lambda connection: agent_pool.claim_trial(connection, trial, hold)
        ):
            await self._limiter.sync()
            return Wait(TRIAL_SECONDS, WaitReason.BREAKER)
        try:
            booked = await self._book(trial)
        except BaseException:
            self._errand(self._end_trial(trial, good=None))
            raise
        if isinstance(booked, Wait):
            await self._end_trial(trial, good=None)
            return replace(booked, reason=WaitReason.BREAKER) if booked.reason is WaitReason.LIMIT else booked
        return booked

    async def _book(self, trial: UUID | None) -> Booking | Wait:
        reason = WaitReason.NO_TOKEN if self._sessions.is_pausing else WaitReason.LIMIT
        for _ in range(MOST_TRIES):
            wait = self._paused()
            if wait is not None:
                return wait
            slot = await self._limiter.acquire()
            if isinstance(slot, FreeIn):
                return Wait(slot.seconds, reason) if slot.seconds is not None else self._no_agents()
            if self._sessions.doubts(slot.agent_id):
                slot = await self._another(slot)
            try:
                booking = await self._equip(slot, trial)
            except BaseException:
                self._errand(self._limiter.withdraw(slot, 0.0))
                raise
            if isinstance(booking, Booking):
                return booking
            if booking is _Unequipped.NO_TOKEN:
                reason = WaitReason.NO_TOKEN
        return Wait(TICK_SECONDS, reason)

    async def _another(self, slot: Slot) -> Slot:
        """Another agent than one that is doubted, if one is free."""
        doubted = [slot]
        try:
            while self._sessions.doubts(slot.agent_id):
                found = await self._limiter.acquire()
                if isinstance(found, FreeIn):
                    break
                slot = found
                doubted.append(found)
        finally:
            for other in doubted:
                if other is not slot:
                    self._errand(self._limiter.withdraw(other, 0.0))
        return slot

    async def _equip(self, slot: Slot, trial: UUID | None) -> "Booking | _Unequipped":
        """The slot with a session; otherwise the slot is given back."""
        if slot.agent_id not in self._agents:
            await self._refresh()
        agent = self._agents[slot.agent_id]
        user_agent = agent.user_agent
        session = self._sessions.use(slot.agent_id, slot.token_no, user_agent)
        token_no = slot.token_no
        if session is None:
            issued = self._sessions.issued
            # One that was issued since the agents were read is found before another is asked for.
            find = self._sessions.renew if agent.token_expires_at is None else self._sessions.obtain
            found = await find(slot.agent_id, user_agent)
            if not isinstance(found, Session):
                await self._limiter.withdraw(slot, found.seconds)
                self._wanted.set()
                return _Unequipped.NO_TOKEN
            session, token_no = found, self._sessions.number(slot.agent_id)
            if self._sessions.issued != issued:
                self._wanted.set()
        send_before = slot.expires - self._settings.total_timeout_seconds
        if time.monotonic() > send_before - 1.0:
            await self._limiter.withdraw(slot, 0.0)
            return _Unequipped.TOO_LATE
        self._open[slot.booking_id] = _Open(slot, token_no, trial)
        return Booking(slot.agent_id, user_agent, session, slot.booking_id, send_before)

    async def _throttle_token(self, agent_id: UUID, asked: float, retry_after: float | None) -> None:
        # Asked for by each agent for itself, and by all of them: a page of its own each, and as good as a control.
        url = f"the session of {agent_id}"
        await self._throttle(agent_id, Call429(asked, retry_after, url, control=True, own=True))

    async def _throttle(self, agent_id: UUID, call: Call429) -> Throttling:
        """A 429, to a request whose answer is told already or to a call for a token."""
        await self._limiter.sync()
        self._sessions.drop(agent_id)
        verdict = await self._database.transact(
            lambda connection: judgement.throttle(connection, self._settings, agent_id, call)
        )
        log.warning(
            "the marketplace throttles",
            agent=str(agent_id),
            url=call.url,
            retry_after=call.retry_after,
            host=verdict.storm,
        )
        await self._refresh()
        return verdict

    async def _judge_failure(self, failure: Failure) -> None:
        if failure.outcome is Outcome.UNAUTHORIZED:
            self._sessions.drop(failure.agent_id)
        good = self._successes.pop(failure.agent_id, 0)
        await self._database.transact(
            lambda connection: judgement.judge(connection, self._settings, {failure.agent_id: good}, [failure])
        )
        self._wanted.set()

    async def _end_trial(self, trial: UUID, *, good: bool | None) -> None:
        cooldown = self._settings.breaker_cooldown_seconds
        await self._database.transact(
            lambda connection: agent_pool.end_trial(connection, trial, good=good, cooldown=cooldown)
        )
        await self._limiter.sync()

    def _seconds_until(self, moment: Callable[[PoolRow], datetime | None]) -> float | None:
        """Until one of the shared moments, by the database's clock and not older than a tick."""
        if self._limiter.shared is None:
            return None
        pool, read = self._limiter.shared
        until = moment(pool)
        return None if until is None else (until - pool.now).total_seconds() - (time.monotonic() - read)

    def _paused(self) -> Wait | None:
        seconds = self._seconds_until(lambda pool: pool.paused_until)
        return Wait(seconds, WaitReason.HOST_PAUSED) if seconds is not None and seconds > 0 else None

    def _no_agents(self) -> Wait:
        resting = [row.suspended_until for row in self._agents.values() if row.suspended_until is not None]
        if not resting or self._limiter.shared is None:
            return Wait(NO_AGENTS_SECONDS, WaitReason.NO_AGENTS)
        pool, read = self._limiter.shared
        seconds = (min(resting) - pool.now).total_seconds() - (time.monotonic() - read)
        return Wait(min(max(seconds, TICK_SECONDS), NO_AGENTS_SECONDS), WaitReason.NO_AGENTS)

    async def _refresh(self) -> None:
        """Learn how the agents stand, let the rested ones back, look at the breaker, and tell the choice."""
        settings = self._settings

        def read(connection: Connection) -> list[AgentRow]:
            rows, now = read_agents(connection), agent_pool.read_pool(connection).now
            if any(row.suspended_until is not None and row.suspended_until <= now for row in rows):
                roster.recover_suspended(connection, settings, now)
                rows = read_agents(connection)
            available = sum(row.status is AgentStatus.AVAILABLE for row in rows)
            if available < len(rows) * (settings.breaker_min_available + 0.01):
                agent_pool.read_pool(connection, lock=True)
                judgement.judge_breaker(connection, settings)
            return rows

        rows = await self._database.transact(read)
        self._agents = {row.agent_id: row for row in rows}
        await self._limiter.sync()
        await self._limiter.publish(rows)

    async def _flush(self) -> None:
        successes, self._successes = self._successes, Counter()
        if successes:
            try:
                await self._database.transact(
                    lambda connection: judgement.judge(connection, self._settings, successes, [])
                )
            except BaseException:
                self._successes += successes
                raise

    async def _tick(self) -> None:
        while not self._closing:
            began = time.monotonic()
            with suppress(TimeoutError):
                async with asyncio.timeout(TICK_SECONDS):
                    await self._wanted.wait()
            if self._closing:
                return
            await asyncio.sleep(began + SHORTEST_TICK_SECONDS - time.monotonic())
            self._wanted.clear()
            try:
                await self._flush()
                await self._refresh()
            except Exception as error:
                # The next acquire meets the same fault if it lasts: without a fresh word from PostgreSQL none is given.
                log.warning("the agent pool could not be refreshed", error=type(error).__name__)

    def _errand(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)
