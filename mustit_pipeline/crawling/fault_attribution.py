"""Fault attribution: who a failed call is charged to. `docs/faults.md` has the whole table.

A 429 is judged in two places. All workers together judge the host (`agents/judgement.py`: a storm). The worker that
got it judges the URL, here: an agent pays only for a 429 to a URL that is answered to another agent.
"""

import asyncio
import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from uuid import UUID

from mustit_pipeline.agents.judgement import Throttling
from mustit_pipeline.domain.states import TaskType
from mustit_pipeline.domain.values import SellerId

# So many different agents in a row pay for failed calls of a kind to one seller; then the seller is at fault.
CHARGED_AGENTS = 5
MOST_SUBJECTS = 1000
MOST_URLS = 1000
FORGOTTEN_AFTER = timedelta(hours=1)
# How long a good answer shows that the host is well.
ANSWERS_SECONDS = 3.0
# After a 429, how long another call's good answer is waited for before one is asked for.
NEXT_ANSWER_SECONDS = 0.25


class Charge(Enum):
    """Who 429s are charged to."""

    UNDECIDED = "undecided"
    AGENT = "agent"
    URL = "URL"
    HOST = "host"


@dataclass(frozen=True, slots=True)
class Refusals:
    """The 429s recorded for one URL since it was last answered otherwise.

    `proven` agents were refused, since their last good answer, nothing else that other agents were not refused too.
    `host_answered` counts the 429s before which the host had answered another call since the 429 before.
    """

    total: int
    agents: int
    proven: int
    host_answered: int


def charge_429(seen: Refusals, tries: int) -> Charge:
    """Who the 429s of a URL are charged to after one more: the URL, once `tries` proven agents were refused it.

    Where the agents are in doubt too, twice as many 429s decide, so that no URL is asked for without end.
    """
    if seen.host_answered < tries - 1:
        return Charge.UNDECIDED
    return Charge.URL if seen.proven >= tries or seen.total >= 2 * tries else Charge.UNDECIDED


def charge_answered(seen: Refusals, tries: int) -> Charge:
    """Who the 429s of a URL are charged to that is answered at last: no agent, once the URL was refused to so many."""
    return Charge.AGENT if seen.agents < tries else Charge.HOST


@dataclass(frozen=True, slots=True)
class Subject:
    """What is asked for: calls that are likely to fail together, with any agent."""

    seller_id: SellerId
    task_type: TaskType


@dataclass(slots=True)
class _Recorded:
    last_at: float
    last: Throttling
    total: int = 0
    host_answered: int = 0
    agents: set[UUID] = field(default_factory=set[UUID])
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a URL's 429s: who they are charged to, and the longest Retry-After that they came with."""

    charge: Charge
    retry_after: float | None


class FaultAttribution:
    """What one worker knows of failed calls.

    `throttled_tries` agents decide about a URL. A failed call that is no 429 is charged to its agent, unless
    `charged_agents` different ones have failed at the same subject since it was last answered: then it is the seller's,
    if the host answers other calls. A host that answers nothing costs health as ever, until the breaker lets all work
    wait for it.
    """

    def __init__(
        self,
        throttled_tries: int,
        charged_agents: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tries = throttled_tries
        self._charged_agents = math.inf if charged_agents is None else charged_agents
        self._clock = clock
        self._failed: dict[Subject, set[UUID]] = {}
        self._urls: dict[str, _Recorded] = {}
        # The URLs that an agent was refused since its last good answer.
        self._refused: dict[UUID, set[str]] = {}
        self._answered_at = self._doubted_at = -math.inf
        self._next_answer = asyncio.Event()

    def answered(self, agent_id: UUID, subject: Subject | None) -> None:
        """The host gave this agent a good answer: one that fails next at the same subject may be at fault again."""
        self._answered_at = self._clock()
        self._refused.pop(agent_id, None)
        if subject is not None:
            self._failed.pop(subject, None)
        self._next_answer.set()
        self._next_answer = asyncio.Event()

    def has_answered_since(self, moment: float) -> bool:
        """Whether the host has given this worker a good answer since then."""
        return self._answered_at > moment

    async def next_answer(self) -> None:
        """Wait for the next good answer, but not for long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(NEXT_ANSWER_SECONDS):
                await self._next_answer.wait()

    def record_429(self, url: str, agent_id: UUID, verdict: Throttling, retry_after: float | None = None) -> Charge:
        """One more 429 recorded for this URL, and who its 429s are charged to now."""
        if verdict.storm:
            self.forget_429s()
            return Charge.HOST
        known = self._urls.get(url)
        if known is None or verdict.judged_at - known.last.judged_at > FORGOTTEN_AFTER:
            if len(self._urls) >= MOST_URLS:
                self._forget(next(iter(self._urls)))
            known = self._urls[url] = _Recorded(self._clock(), verdict)
        else:
            known.host_answered += self.has_answered_since(known.last_at) or verdict.others_answered_since(known.last)
        known.total += 1
        known.agents.add(agent_id)
        known.last_at, known.last = self._clock(), verdict
        if retry_after is not None:
            known.retry_after = max(retry_after, known.retry_after or 0.0)
        self._refused.setdefault(agent_id, set()).add(url)
        charge = charge_429(self._seen(url, known), self._tries)
        if charge is Charge.URL:
            self._forget(url)
        return charge

    def end_429s(self, url: str) -> Ended | None:
        """The URL was answered: who its 429s are charged to, None if there were none."""
        known = self._urls.get(url)
        if known is None:
            return None
        ended = Ended(charge_answered(self._seen(url, known), self._tries), known.retry_after)
        self._forget(url)
        return ended

    def last_429(self, url: str) -> float:
        """When this URL was last refused, on this clock."""
        known = self._urls.get(url)
        return -math.inf if known is None else known.last_at

    def unexplained_429s(self, url: str) -> int:
        """How many 429s of this URL, from the one on that should have decided, the host's silence left undecided."""
        known = self._urls.get(url)
        if known is None or self.has_answered_since(known.last_at):
            return 0
        return max(0, known.total - self._tries + 1)

    def forget_429s(self) -> None:
        """It was the host: no URL and no agent is charged with what it refused."""
        self._urls.clear()
        self._refused.clear()

    def begin_host_check(self, subject: Subject) -> bool:
        """Whether the caller should now ask for something else, to see if the host answers that; one at a time does."""
        now = self._clock()
        if not self._is_sellers(subject) or now - max(self._answered_at, self._doubted_at) < ANSWERS_SECONDS / 2:
            return False
        self._doubted_at = now
        return True

    def charge(self, agent_id: UUID, subject: Subject) -> bool:
        """Whether one more failed call, no 429, is charged to the agent that made it."""
        if self._is_sellers(subject):
            return self._clock() - self._answered_at >= ANSWERS_SECONDS
        if subject not in self._failed and len(self._failed) >= MOST_SUBJECTS:
            del self._failed[next(iter(self._failed))]
        self._failed.setdefault(subject, set()).add(agent_id)
        return True

    def _is_sellers(self, subject: Subject) -> bool:
        return len(self._failed.get(subject, ())) >= self._charged_agents

    def _seen(self, url: str, known: _Recorded) -> Refusals:
        proven = sum(self._is_proven(agent_id, url) for agent_id in known.agents)
        return Refusals(known.total, len(known.agents), proven, known.host_answered)

    def _is_proven(self, agent_id: UUID, url: str) -> bool:
        """Whether the agent alone was refused nothing but this since its last good answer."""
        others = self._refused.get(agent_id, set()) - {url}
        return all(len(self._urls[other].agents) > 1 for other in others)

    def _forget(self, url: str) -> None:
        for agent_id in self._urls.pop(url).agents:
            refused = self._refused.get(agent_id, set())
            refused.discard(url)
            if not refused:
                self._refused.pop(agent_id, None)
