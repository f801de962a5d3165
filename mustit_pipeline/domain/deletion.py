"""Deletions that are held back until an admin decides."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from mustit_pipeline.domain.aggregate import Aggregate
from mustit_pipeline.domain.states import DELETION_HOLD, HoldStatus
from mustit_pipeline.domain.values import ExecutionId, SellerId


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeletionHold(Aggregate):
    """Products missing from one seller's sweep, too many at once to be believed."""

    id: UUID
    seller_id: SellerId
    execution_id: ExecutionId
    live_count: int
    item_nos: tuple[int, ...]
    opened_at: datetime
    status: HoldStatus = HoldStatus.OPEN
    closed_at: datetime | None = None

    @property
    def held_count(self) -> int:
        return len(self.item_nos)

    @property
    def share(self) -> float:
        """How many of the seller's products it would delete, in percent."""
        return 100 * self.held_count / self.live_count if self.live_count else 0.0

    def approve(self, at: datetime) -> None:
        """An admin confirms that the products are gone."""
        self._set(status=DELETION_HOLD.move(self.status, "approve"), closed_at=at)

    def reject(self, at: datetime) -> None:
        """An admin finds that the products are not gone."""
        self._set(status=DELETION_HOLD.move(self.status, "reject"), closed_at=at)
