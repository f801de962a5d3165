"""Whose fault failed calls are: an agent's, or that of what was asked for."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

from mustit_pipeline.domain.states import TaskType
from mustit_pipeline.domain.values import SellerId

MOST_SUBJECTS = 1000
# How long a good answer shows that the host is well.
ANSWERS_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Subject:
    """What is asked for: calls that are likely to fail together, whoever sends them."""

    seller_id: SellerId
    task_type: TaskType


@dataclass(slots=True)
class Blame:
    """Blames an agent that fails, unless so many different ones failed at the same subject since it was last answered.

    Then it is the seller, if the host answers other calls: without this the bad pages of one seller would suspend the
    pool for all. A host that answers nothing costs health as ever, until the breaker lets all work wait for it.
    """

    most_agents: int
    clock: Callable[[], float] = time.monotonic
    _failed: dict[Subject, set[UUID]] = field(default_factory=dict[Subject, set[UUID]])
    _answered_at: float = -math.inf
    _doubted_at: float = -math.inf

    def answered(self, subject: Subject | None) -> None:
        """The host gave a good answer: whoever fails next at the same subject may be at fault again."""
        self._answered_at = self.clock()
        if subject is not None:
            self._failed.pop(subject, None)

    def doubts_host(self, subject: Subject) -> bool:
        """Whether somebody should ask for something else, to see if the host answers that; one at a time is enough."""
        now = self.clock()
        if not self._is_row(subject) or now - max(self._answered_at, self._doubted_at) < ANSWERS_SECONDS / 2:
            return False
        self._doubted_at = now
        return True

    def falls_on(self, agent_id: UUID, subject: Subject) -> bool:
        """Whether one more failed call is the fault of the agent that made it."""
        if self._is_row(subject):
            return self.clock() - self._answered_at >= ANSWERS_SECONDS
        if subject not in self._failed and len(self._failed) >= MOST_SUBJECTS:
            del self._failed[next(iter(self._failed))]
        self._failed.setdefault(subject, set()).add(agent_id)
        return True

    def _is_row(self, subject: Subject) -> bool:
        return len(self._failed.get(subject, ())) >= self.most_agents
