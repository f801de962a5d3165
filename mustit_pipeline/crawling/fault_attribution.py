"""Fault attribution: what a failed call is charged to. `docs/faults.md` has the whole table.

A 429 is judged in two places. All workers together judge the host (`agents/judgement.py`: a storm). The worker that got
the 429 judges the URL, here: an agent is charged only if another agent gets an answer for the same URL.
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

from msgspec import Struct

from mustit_pipeline.agents.judgement import Throttling
from mustit_pipeline.domain.states import TaskType
from mustit_pipeline.domain.values import SellerId

# So many different agents in a row pay for failed calls of a kind to one seller; then the seller is at fault.
CHARGED_AGENTS = 5
MOST_SUBJECTS = 1000
MOST_URLS = 1000
FORGOTTEN_AFTER = timedelta(hours=1)
# For how long a good answer proves that the host works.
ANSWERS_SECONDS = 3.0
# After a 429, how long to wait for another call's good answer before sending a request to get one.
NEXT_ANSWER_SECONDS = 0.25


class Charge(Enum):
    """What 429s are charged to."""

    UNDECIDED = "undecided"
    AGENT = "agent"
    URL = "URL"
    HOST = "host"


@dataclass(frozen=True, slots=True)
class Refusals:
    """The 429s recorded for one URL since it was last answered otherwise.

    `proven` agents got 429s, since their last good answer, only for URLs that other agents got 429s for too.
    `host_answered` counts the 429s before which the host had answered another call since the previous 429.
    """

    total: int
    agents: int
    proven: int
    host_answered: int


def charge_429(seen: Refusals, tries: int) -> Charge:
    """What a URL's 429s are charged to after one more: the URL, once `tries` proven agents got a 429.

    If the agents are not proven, twice as many 429s decide, so that no URL is requested without end.
    """
    if seen.host_answered < tries - 1:
        return Charge.UNDECIDED
    return Charge.URL if seen.proven >= tries or seen.total >= 2 * tries else Charge.UNDECIDED


def charge_answered(seen: Refusals, tries: int) -> Charge:
    """What a URL's 429s are charged to once it is answered: no agent, if `tries` agents got a 429."""
    return Charge.AGENT if seen.agents < tries else Charge.HOST


class Subject(Struct, frozen=True):
    """The subject of a call: calls with the same subject are likely to fail together, with any agent."""

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
    """The end of a URL's 429s: what they are charged to, and their longest Retry-After."""

    charge: Charge
    retry_after: float | None


class FaultAttribution:
    """One worker's record of failed calls.

    `throttled_tries` agents decide about a URL. Any other failed call is charged to its agent, unless `charged_agents`
    different agents have failed at the same subject since it was last answered: then it is the seller's fault, if the
    host answers other calls. If the host answers nothing, the calls cost the agents health as usual, until the breaker
    opens.
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
        # The URLs for which an agent got a 429 since its last good answer.
        self._refused: dict[UUID, set[str]] = {}
        self._answered_at = self._doubted_at = -math.inf
        self._next_answer: asyncio.Event | None = None

    def record_answer(self, agent_id: UUID, subject: Subject | None) -> None:
        """Record a good answer; the next agent that fails at the same subject may be charged again."""
        self._answered_at = self._clock()
        self._refused.pop(agent_id, None)
        if subject is not None and self._failed:
            self._failed.pop(subject, None)
        if self._next_answer is not None:
            self._next_answer.set()
            self._next_answer = None

    def has_answered_since(self, moment: float) -> bool:
        """Whether this worker has got a good answer since then."""
        return self._answered_at > moment

    async def wait_for_answer(self) -> None:
        """Wait a short time for the next good answer."""
        self._next_answer = self._next_answer or asyncio.Event()
        with suppress(TimeoutError):
            async with asyncio.timeout(NEXT_ANSWER_SECONDS):
                await self._next_answer.wait()

    def record_429(self, url: str, agent_id: UUID, verdict: Throttling, retry_after: float | None = None) -> Charge:
        """Record a 429 for this URL; returns what its 429s are charged to now."""
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
        """The URL was answered: what its 429s are charged to, None if there were none."""
        known = self._urls.get(url)
        if known is None:
            return None
        ended = Ended(charge_answered(self._seen(url, known), self._tries), known.retry_after)
        self._forget(url)
        return ended

    def last_429(self, url: str) -> float:
        """When this URL last got a 429, on this worker's clock."""
        known = self._urls.get(url)
        return -math.inf if known is None else known.last_at

    def unexplained_429s(self, url: str) -> int:
        """How many 429s of this URL stay undecided because the host answers nothing else, from number `tries` on."""
        known = self._urls.get(url)
        if known is None or self.has_answered_since(known.last_at):
            return 0
        return max(0, known.total - self._tries + 1)

    def forget_429s(self) -> None:
        """The host was at fault: forget all 429s, so that no URL and no agent is charged."""
        self._urls.clear()
        self._refused.clear()

    def begin_host_check(self, subject: Subject) -> bool:
        """Whether the caller should now ask for something else, to see if the host answers that; one at a time does."""
        if not self._failed or not self._is_sellers(subject):
            return False
        now = self._clock()
        if now - max(self._answered_at, self._doubted_at) < ANSWERS_SECONDS / 2:
            return False
        self._doubted_at = now
        return True

    def charge(self, agent_id: UUID, subject: Subject) -> bool:
        """Record a failed call that is no 429; returns whether it is charged to its agent."""
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
        """Whether all other URLs of the agent's 429s since its last good answer were refused to other agents too."""
        others = self._refused.get(agent_id, set()) - {url}
        return all(len(self._urls[other].agents) > 1 for other in others)

    def _forget(self, url: str) -> None:
        for agent_id in self._urls.pop(url).agents:
            refused = self._refused.get(agent_id, set())
            refused.discard(url)
            if not refused:
                self._refused.pop(agent_id, None)
