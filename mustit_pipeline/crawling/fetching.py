"""One fetch with whatever agent is free: it waits, changes agents and repeats until there is a result or a reason."""

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Generic, TypeVar
from urllib.parse import urlsplit

from msgspec import Struct

from mustit_pipeline.agents.pool import AgentPool, Booking, Outcome, WaitReason
from mustit_pipeline.crawling.fault_attribution import Charge, FaultAttribution, Subject
from mustit_pipeline.domain.backoff import Tries, backoff_seconds
from mustit_pipeline.domain.states import TaskType
from mustit_pipeline.domain.storm import product_of
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.failures import (
    BodyTooLarge,
    FetchError,
    ForbiddenHost,
    MalformedBody,
    NetworkFailure,
    NotFoundAnswer,
    ServerFailure,
    SessionRefused,
    StatusFailure,
    Throttled,
    ThrottledUrl,
    Unauthorized,
)
from mustit_pipeline.marketplace.client import MarketplaceClient
from mustit_pipeline.marketplace.endpoints import endpoint_of
from mustit_pipeline.marketplace.parsing import parse_count
from mustit_pipeline.settings import Settings
from mustit_pipeline.tallies.sql.tallies import Labels

T = TypeVar("T")
# The longest pause between two tries inside one fetch.
LONGEST_BACKOFF_SECONDS = 10.0


class NoAgentFree(Exception):
    """No agent is free soon enough; nothing is wrong with what was to be fetched."""


class FetchOutcome(StrEnum):
    """How a call ended, for people who look at all calls together."""

    OK = "ok"
    NOT_FOUND = "not_found"
    THROTTLED = "throttled"
    UNAUTHORIZED = "unauthorized"
    SERVER_ERROR = "server_error"
    NETWORK_ERROR = "network_error"
    REFUSED_BODY = "refused_body"
    OTHER_STATUS = "other_status"
    # Broken off on our side.
    ABANDONED = "abandoned"


@dataclass(slots=True)
class RequestCounter:
    """The calls that were really made, and how long each took, by endpoint and outcome."""

    requests: int = 0
    throttled: int = 0
    durations: dict[Labels, list[float]] = field(default_factory=dict[Labels, list[float]])

    def count_call(self, endpoint: TaskType, outcome: FetchOutcome, seconds: float) -> None:
        """A call has ended."""
        self.durations.setdefault((endpoint.value, outcome.value), []).append(seconds)


def durations_of(counters: Iterable[RequestCounter]) -> dict[Labels, list[float]]:
    """The calls of several counters together."""
    together: dict[Labels, list[float]] = {}
    for counter in counters:
        for labels, durations in counter.durations.items():
            together.setdefault(labels, []).extend(durations)
    return together


class Fetched(Struct, Generic[T], frozen=True):
    """A body and what was read from it."""

    body: bytes
    value: T


class Fetcher:
    """Fetches for one worker; it waits for an agent until `deadline` (loop time), and never longer than `patience`.

    Where no agent is given a session token for `token_patience`, that is a failure of the marketplace. A URL that is
    refused to `throttled_tries` agents while the host answers others is a failed call that is not tried again. After
    `charged_agents` different agents, failures of a call with a subject are charged to none. After a `wait` that ends
    early the pool is asked again; one that raises NoAgentFree gives up.
    """

    def __init__(
        self,
        settings: Settings,
        client: MarketplaceClient,
        pool: AgentPool,
        *,
        deadline: float,
        charged_agents: int | None = None,
        patience: float = math.inf,
        token_patience: float = math.inf,
        wait: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._pool = pool
        self._deadline = deadline
        self._patience = patience
        self._token_patience = token_patience
        self._wait = wait
        self._network_tries = settings.network_tries
        # Kept while tasks wait elsewhere for a pause to end: recorded anew each time, no 429s would ever be enough.
        self._faults = FaultAttribution(settings.throttled_tries, charged_agents)
        self._control = asyncio.Lock()
        self._controlled_at = -math.inf
        self._retry_base = settings.retry_base_seconds

    async def fetch(
        self,
        url: str,
        read: Callable[[bytes], T],
        calls: RequestCounter,
        booking: Booking | None = None,
        *,
        control: Callable[[], str] | None = None,
        subject: Subject | None = None,
    ) -> Fetched[T]:
        """The body behind a URL, read; a host that throttles or a lost session costs no try, a broken network does.

        `control` names a listing: where no other call is under way, its answer shows whether the host is at fault.
        """
        broken: NetworkFailure | None = None
        tries = Tries(self._network_tries)
        refused_at: datetime | None = None
        refused = False
        while True:
            try:
                if refused:
                    await self._see_host(url, control, calls)
                    refused = False
                agent = await self._agent(refused_at, booking)
                if control is not None and subject is not None and self._faults.begin_host_check(subject):
                    await self._ask(agent, control(), calls)
                    agent = await self._agent(refused_at)
            except NoAgentFree:
                # A try was spent and failed: that is how this attempt ended, so that it cannot go round for ever.
                if broken is not None:
                    raise broken from None
                raise
            booking = None
            try:
                fetched = await self._attempt(agent, url, read, calls, subject)
            except Throttled as error:
                refused = True
                # A listing that stands for itself is its own control.
                await self._record_429(agent, url, error, control=control is None and product_of(url) is None)
            except Unauthorized:
                if refused_at is not None:
                    raise
                refused_at = utc_now()
            except NetworkFailure as error:
                broken = error
                tries.failed()
                if not tries.can_retry():
                    raise
                pause = backoff_seconds(tries.failures, self._retry_base, LONGEST_BACKOFF_SECONDS, random.random())
                await asyncio.sleep(pause)
            else:
                return fetched

    async def _record_429(self, agent: Booking, url: str, error: Throttled, *, control: bool) -> None:
        """Tell the pool, and end the call if that shows that its URL is at fault."""
        verdict = await self._pool.record_429(agent, error.retry_after, url=_place(url), control=control)
        if verdict is None:
            return
        charge = self._faults.record_429(url, agent.agent_id, verdict, error.retry_after)
        if charge is Charge.URL:
            await self._pool.give_back(_place(url))
            raise ThrottledUrl(error.path, error.retry_after) from error

    async def _see_host(self, url: str, control: Callable[[], str] | None, calls: RequestCounter) -> None:
        """After a 429, see the host answer something else, or be refused that too, before this is asked for again."""
        since = self._faults.last_429(url)
        if not self._faults.has_answered_since(since):
            await self._faults.wait_for_answer()
        if control is not None:
            # One control is enough for all that wait, and so is one that found no agent.
            async with self._control:
                if self._controlled_at <= since and not self._faults.has_answered_since(since):
                    try:
                        await self._ask(await self._agent(), control(), calls)
                    finally:
                        self._controlled_at = time.monotonic()
        unexplained = self._faults.unexplained_429s(url)
        if unexplained:
            # Neither the URL nor the host is known to be at fault: ask more and more rarely.
            await self._rest(backoff_seconds(unexplained, self._retry_base, LONGEST_BACKOFF_SECONDS, random.random()))

    async def _rest(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() + seconds > min(self._deadline, loop.time() + self._patience):
            raise NoAgentFree("429")
        await self._wait(seconds)

    async def _ask(self, agent: Booking, url: str, calls: RequestCounter) -> None:
        """Let the host answer something, whatever it says."""
        try:
            await self._attempt(agent, url, parse_count, calls)
        except Throttled as error:
            with suppress(ThrottledUrl):
                await self._record_429(agent, url, error, control=True)
        except FetchError:
            return

    async def _agent(self, refused_at: datetime | None = None, booked: Booking | None = None) -> Booking:
        """An agent; after a refusal, one whose session is newer: all that were issued before may be forgotten."""
        if booked is not None:
            if time.monotonic() < booked.send_before:
                return booked
            # Used so late it would be counted in another window than the marketplace's.
            await self._pool.settle(booked, Outcome.NOT_SENT)
        loop = asyncio.get_running_loop()
        until = min(self._deadline, loop.time() + self._patience)
        without_token = 0.0
        while True:
            answer = await self._pool.acquire()
            if refused_at is not None and isinstance(answer, Booking) and answer.session.issued_at < refused_at:
                answer = await self._pool.renew(answer)
            if isinstance(answer, Booking):
                return answer
            if answer.reason is WaitReason.HOST_PAUSED:
                self._faults.forget_429s()
            lacks_token = answer.reason is WaitReason.NO_TOKEN
            if lacks_token and without_token + answer.seconds > self._token_patience:
                raise SessionRefused(
                    "/", f"for {self._token_patience:g} s; the last answer: {self._pool.token_trouble}"
                )
            if loop.time() + answer.seconds > until:
                raise NoAgentFree(answer.reason.value)
            began = loop.time()
            await self._wait(answer.seconds)
            without_token += loop.time() - began if lacks_token else 0.0

    async def _attempt(
        self,
        agent: Booking,
        url: str,
        read: Callable[[bytes], T],
        calls: RequestCounter,
        subject: Subject | None = None,
    ) -> Fetched[T]:
        """Call and read; how long the call took is counted, whatever came of it."""
        calls.requests += 1
        began, answered = time.perf_counter(), None
        try:
            answer = await self._client.call(url, agent.session.headers(agent.user_agent))
            answered = time.perf_counter()
            fetched = Fetched(answer.body, read(answer.body))
        except BaseException as error:
            took = (answered or time.perf_counter()) - began
            await self._fail(agent, url, error, calls, subject=subject, seconds=took)
            raise
        calls.count_call(endpoint_of(url), FetchOutcome.OK, answered - began)
        await self._settle(agent, url, Outcome.SUCCESS, subject)
        return fetched

    async def _fail(
        self,
        agent: Booking,
        url: str,
        error: BaseException,
        calls: RequestCounter,
        *,
        subject: Subject | None,
        seconds: float,
    ) -> None:
        """Count a call without a usable answer, and settle its booking; that of a 429 the caller records."""
        if isinstance(error, ForbiddenHost):
            # Nothing was sent.
            calls.requests -= 1
            await self._pool.settle(agent, Outcome.NOT_SENT)
            return
        calls.count_call(endpoint_of(url), _counted_as(error), seconds)
        if isinstance(error, Throttled):
            calls.throttled += 1
        elif isinstance(error, FetchError):
            await self._settle(agent, url, _outcome(error), subject, understood=not isinstance(error, MalformedBody))
        else:
            # Our own end is no fault of the agent, but what was under way may still be counted.
            outcome = Outcome.LOST if isinstance(error, Exception) else Outcome.ABANDONED
            await asyncio.shield(self._pool.settle(agent, outcome))

    async def _settle(
        self, agent: Booking, url: str, outcome: Outcome, subject: Subject | None, *, understood: bool = True
    ) -> None:
        """Tell the pool how a call ended; one that was answered also ends the 429s of its URL."""
        if outcome is not Outcome.SUCCESS:
            charged = subject is None or self._faults.charge(agent.agent_id, subject)
            await self._pool.settle(agent, outcome, charged=charged)
            return
        if understood:
            # A host whose answers are not understood is not known to be well.
            self._faults.record_answer(agent.agent_id, subject)
        await self._pool.settle(agent, outcome)
        ended = self._faults.end_429s(url)
        # The agents that were refused it pay, unless they were too many.
        if ended is not None and ended.charge is Charge.AGENT:
            await self._pool.charge_429s(_place(url), ended.retry_after)
        elif ended is not None:
            await self._pool.give_back(_place(url))


def _place(url: str) -> str:
    """A URL as agents' rows name it: what differs from call to call, whatever the server."""
    parts = urlsplit(url)
    return parts.path + (f"?{parts.query}" if parts.query else "")


def _outcome(error: FetchError) -> Outcome:
    if isinstance(error, Unauthorized):
        return Outcome.UNAUTHORIZED
    if isinstance(error, ServerFailure):
        return Outcome.SERVER_ERROR
    if isinstance(error, NetworkFailure) and error.may_still_arrive:
        return Outcome.LOST
    # That a product does not exist, or JSON that we do not understand, is an answer: the agent that brought it is well.
    answered = isinstance(error, NotFoundAnswer) or (isinstance(error, MalformedBody) and error.document is not None)
    return Outcome.SUCCESS if answered else Outcome.FAILED


_COUNTED_AS: dict[type[FetchError], FetchOutcome] = {
    Throttled: FetchOutcome.THROTTLED,
    Unauthorized: FetchOutcome.UNAUTHORIZED,
    NotFoundAnswer: FetchOutcome.NOT_FOUND,
    ServerFailure: FetchOutcome.SERVER_ERROR,
    StatusFailure: FetchOutcome.OTHER_STATUS,
    NetworkFailure: FetchOutcome.NETWORK_ERROR,
    MalformedBody: FetchOutcome.REFUSED_BODY,
    BodyTooLarge: FetchOutcome.REFUSED_BODY,
}


def _counted_as(error: BaseException) -> FetchOutcome:
    return next((outcome for kind, outcome in _COUNTED_AS.items() if isinstance(error, kind)), FetchOutcome.ABANDONED)
