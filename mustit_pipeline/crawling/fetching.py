"""One fetch with whatever agent is free: it waits, changes agents and repeats until there is a result or a reason."""

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from mustit_pipeline.agents.pool import AgentPool, Booking, Outcome, Throttling
from mustit_pipeline.clock import utc_now
from mustit_pipeline.crawling.blame import Blame, Subject
from mustit_pipeline.domain.backoff import Tries, backoff_seconds
from mustit_pipeline.failures import (
    FetchError,
    ForbiddenHost,
    MalformedBody,
    NetworkFailure,
    NotFoundAnswer,
    ServerFailure,
    SessionRefused,
    Throttled,
    Unauthorized,
)
from mustit_pipeline.marketplace.client import MarketplaceClient
from mustit_pipeline.marketplace.parsing import parse_count

T = TypeVar("T")

FORGOTTEN_AFTER = timedelta(hours=1)
MOST_REFUSED = 1000


class NoAgentFree(Exception):
    """No agent is free soon enough; nothing is wrong with what was to be fetched."""


@dataclass(slots=True)
class RequestCounter:
    """The calls that were really made."""

    requests: int = 0
    throttled: int = 0


@dataclass(slots=True)
class Refusals:
    """The 429s that a URL got since it was last answered otherwise, and how many of them were its own."""

    tries: Tries
    own: int = 0
    last: Throttling | None = None

    def is_the_url(self, verdict: Throttling) -> bool:
        """One more, after which it is the URL and not the host, or not yet known; once may be an agent's fault."""
        self.tries.failed()
        self.own += verdict.is_alone(since=self.last)
        self.last = verdict
        return not self.tries.can_retry() and self.own > 1

    def is_over(self, verdict: Throttling) -> bool:
        """Whether this is another story: its task has long gone to somebody else."""
        return self.last is not None and verdict.judged_at - self.last.judged_at > FORGOTTEN_AFTER


@dataclass(frozen=True, slots=True)
class Fetched(Generic[T]):
    """A body and what was read from it."""

    body: bytes
    value: T


class Fetcher:
    """Fetches for one worker; it waits for an agent until `deadline` (loop time), and never longer than `patience`.

    Where no agent is given a session token for `token_patience`, that is a failure of the marketplace. A URL that
    throttles `throttled_tries` agents while the host answers others is a failed call. Every failure is an agent's
    fault, unless `blame` says otherwise of a call with a subject. After a `wait` that ends early the pool is asked
    again; one that raises NoAgentFree gives up.
    """

    def __init__(
        self,
        client: MarketplaceClient,
        pool: AgentPool,
        *,
        deadline: float,
        retry_base_seconds: float,
        network_tries: int,
        throttled_tries: int,
        longest_backoff_seconds: float,
        blame: Blame | None = None,
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
        self._blame = blame
        self._network_tries = network_tries
        self._throttled_tries = throttled_tries
        # Kept while their tasks wait elsewhere for a pause to end: counted anew each time, none would ever be enough.
        self._refusals: dict[str, Refusals] = {}
        self._retry_base = retry_base_seconds
        self._longest_backoff = longest_backoff_seconds

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

        `control` names a listing: where nobody else asks, its answer shows whether it is the host that is at fault.
        """
        broken: NetworkFailure | None = None
        tries = Tries(self._network_tries)
        refused_at: datetime | None = None
        while True:
            try:
                agent = await self._agent(refused_at) if booking is None else await self._still_good(booking)
                if control is not None and self._doubts_host(url, subject):
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
                verdict = await self._pool.throttled(agent, error.retry_after)
                if verdict is not None and self._is_refused(url, verdict):
                    del self._refusals[url]
                    raise
            except Unauthorized:
                self._refusals.pop(url, None)
                if refused_at is not None:
                    raise
                refused_at = utc_now()
            except NetworkFailure as error:
                broken = error
                tries.failed()
                if not tries.can_retry():
                    raise
                pause = backoff_seconds(tries.failures, self._retry_base, self._longest_backoff, random.random())
                await asyncio.sleep(pause)
            except FetchError:
                self._refusals.pop(url, None)
                raise
            else:
                self._refusals.pop(url, None)
                return fetched

    def _doubts_host(self, url: str, subject: Subject | None) -> bool:
        """Whether so many agents were refused this, or failed at it, that another call should show who is at fault."""
        throttled = self._refusals.get(url)
        if throttled is not None and not throttled.tries.can_retry():
            return True
        return self._blame is not None and subject is not None and self._blame.doubts_host(subject)

    def _is_refused(self, url: str, verdict: Throttling) -> bool:
        """Whether one more 429 shows that this URL is always throttled."""
        known = self._refusals.get(url)
        if known is None or known.is_over(verdict):
            if len(self._refusals) >= MOST_REFUSED:
                del self._refusals[next(iter(self._refusals))]
            known = self._refusals[url] = Refusals(Tries(self._throttled_tries))
        return known.is_the_url(verdict)

    async def _ask(self, agent: Booking, url: str, calls: RequestCounter) -> None:
        """Let the host answer something, whatever it says."""
        try:
            await self._attempt(agent, url, parse_count, calls)
        except Throttled as error:
            await self._pool.throttled(agent, error.retry_after)
        except FetchError:
            return

    async def _agent(self, refused_at: datetime | None = None) -> Booking:
        """An agent; after a refusal, one whose session is newer: all that were issued before may be forgotten."""
        loop = asyncio.get_running_loop()
        until = min(self._deadline, loop.time() + self._patience)
        without_token = 0.0
        while True:
            answer = await self._pool.acquire()
            if refused_at is not None and isinstance(answer, Booking) and answer.session.issued_at < refused_at:
                answer = await self._pool.renew(answer)
            if isinstance(answer, Booking):
                return answer
            lacks_token = answer.reason == "tokens"
            if lacks_token and without_token + answer.seconds > self._token_patience:
                raise SessionRefused(
                    "/", f"for {self._token_patience:g} s; the last answer: {self._pool.token_trouble}"
                )
            if loop.time() + answer.seconds > until:
                raise NoAgentFree(answer.reason)
            began = loop.time()
            await self._wait(answer.seconds)
            without_token += loop.time() - began if lacks_token else 0.0

    async def _still_good(self, booking: Booking) -> Booking:
        """A booking that was not used in time would be counted in another window than the marketplace's."""
        if time.monotonic() < booking.send_before:
            return booking
        await self._pool.settle(booking, Outcome.NOT_SENT)
        return await self._agent()

    async def _attempt(
        self,
        agent: Booking,
        url: str,
        read: Callable[[bytes], T],
        calls: RequestCounter,
        subject: Subject | None = None,
    ) -> Fetched[T]:
        calls.requests += 1
        try:
            answer = await self._client.call(url, agent.session.headers(agent.user_agent))
            value = read(answer.body)
        except ForbiddenHost:
            calls.requests -= 1
            await self._pool.settle(agent, Outcome.NOT_SENT)
            raise
        except Throttled:
            # Whoever called tells the pool, and hears what it makes of that.
            calls.throttled += 1
            raise
        except FetchError as error:
            await self._settle(agent, _outcome(error), subject, understood=not isinstance(error, MalformedBody))
            raise
        except BaseException as error:
            # Our own end is no fault of the agent, but what was under way may still be counted.
            outcome = Outcome.LOST if isinstance(error, Exception) else Outcome.ABANDONED
            await asyncio.shield(self._pool.settle(agent, outcome))
            raise
        await self._settle(agent, Outcome.SUCCESS, subject)
        return Fetched(answer.body, value)

    async def _settle(
        self, agent: Booking, outcome: Outcome, subject: Subject | None, *, understood: bool = True
    ) -> None:
        blamed = True
        if self._blame is not None:
            if outcome is Outcome.SUCCESS:
                # A host whose answers nobody understands is not known to be well.
                if understood:
                    self._blame.answered(subject)
            elif subject is not None:
                blamed = self._blame.falls_on(agent.agent_id, subject)
        await self._pool.settle(agent, outcome, blamed=blamed)


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
