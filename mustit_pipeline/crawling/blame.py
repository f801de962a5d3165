"""Whose fault failed calls are: an agent's, or that of what was asked for."""

from dataclasses import dataclass, field
from uuid import UUID

from mustit_pipeline.domain.states import TaskType
from mustit_pipeline.domain.values import SellerId

MOST_SUBJECTS = 1000


@dataclass(frozen=True, slots=True)
class Subject:
    """What is asked for: calls that are likely to fail together, whoever sends them."""

    seller_id: SellerId
    task_type: TaskType


@dataclass(slots=True)
class Blame:
    """Blames an agent that fails, unless so many different ones failed at the same subject since it was last answered.

    Then it is the seller or the host: without this the bad pages of one seller would suspend the pool for all.
    """

    most_agents: int
    _failed: dict[Subject, set[UUID]] = field(default_factory=dict[Subject, set[UUID]])

    def answered(self, subject: Subject) -> None:
        """Somebody got a good answer: whoever fails next may be at fault again."""
        self._failed.pop(subject, None)

    def falls_on(self, agent_id: UUID, subject: Subject) -> bool:
        """Whether one more failed call is the fault of the agent that made it."""
        if subject not in self._failed and len(self._failed) >= MOST_SUBJECTS:
            del self._failed[next(iter(self._failed))]
        agents = self._failed.setdefault(subject, set())
        if len(agents) >= self.most_agents:
            return False
        agents.add(agent_id)
        return True
