"""Changes that are held back because too many of a seller's products look wrong at once."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from mustit_pipeline.domain.aggregate import Aggregate
from mustit_pipeline.domain.limits import PRICE_JUMP_FACTOR, SUSPICIOUS_LEAST, SUSPICIOUS_SHARE
from mustit_pipeline.domain.states import CHANGE_HOLD, ChangeHoldStatus
from mustit_pipeline.domain.values import SellerId


@dataclass(frozen=True, slots=True)
class BeliefRules:
    """When a price has jumped, and how many suspicious products at once are too many to be believed."""

    jump_factor: float = PRICE_JUMP_FACTOR
    share: float = SUSPICIOUS_SHARE
    least: int = SUSPICIOUS_LEAST

    def may_be_many(self, suspicious: int) -> bool:
        """Whether there are enough of them for their share of the seller's products to matter."""
        return suspicious >= self.least


@dataclass(frozen=True, slots=True)
class Suspicion:
    """How many of a seller's products look wrong before they are published, of how many that were checked."""

    jumped: int
    emptied: int
    suspicious: int
    looked_at: int
    examples: tuple[int, ...] = ()

    @property
    def share(self) -> float:
        """The suspicious part, in percent."""
        return 100 * self.suspicious / self.looked_at if self.looked_at else 0.0

    def is_believable(self, rules: BeliefRules) -> bool:
        """Whether so many suspicious changes at once are plausible."""
        return not rules.may_be_many(self.suspicious) or self.suspicious <= rules.share * self.looked_at


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChangeHold(Aggregate):
    """One seller's changes, unpublished until they look right again or an admin releases them."""

    id: UUID
    seller_id: SellerId
    suspicion: Suspicion
    opened_at: datetime
    status: ChangeHoldStatus = ChangeHoldStatus.OPEN
    closed_at: datetime | None = None

    def release(self, at: datetime) -> None:
        """An admin confirms that the changes are real."""
        self._set(status=CHANGE_HOLD.move(self.status, "release"), closed_at=at)
