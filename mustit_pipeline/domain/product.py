"""A product as the catalog knows it."""

from dataclasses import dataclass
from datetime import datetime

from mustit_pipeline.domain.aggregate import Aggregate
from mustit_pipeline.domain.errors import InvariantViolated
from mustit_pipeline.domain.limits import DELETION_SWEEPS
from mustit_pipeline.domain.states import TaskType
from mustit_pipeline.domain.values import ItemNo, ProductId, SellerId

_HASH_OF = {
    TaskType.MINISHOP: "minishop_data_hash",
    TaskType.PRODUCT_DETAIL: "detail_data_hash",
    TaskType.PRODUCT_OPTION: "option_data_hash",
}


def absent_long_enough(absent_sweeps: int, sweeps: int) -> bool:
    """Whether so many complete sweeps in a row without a product are enough to ask the marketplace for it."""
    return absent_sweeps >= sweeps


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Product(Aggregate):
    """The hash of each source's last data, the number of published versions, and whether it is still listed."""

    id: ProductId
    seller_id: SellerId
    item_no: ItemNo
    minishop_data_hash: str | None = None
    detail_data_hash: str | None = None
    option_data_hash: str | None = None
    version: int = 0
    absent_sweeps: int = 0
    deleted_at: datetime | None = None

    @property
    def is_complete(self) -> bool:
        """Whether listing, detail and options have each been seen; seeing that there are no options counts."""
        return None not in (self.minishop_data_hash, self.detail_data_hash, self.option_data_hash)

    @property
    def is_deleted(self) -> bool:
        """Whether it has left the marketplace."""
        return self.deleted_at is not None

    def changed(self, source: TaskType, data_hash: str) -> bool:
        """Whether a source's data differs from last time."""
        return getattr(self, _HASH_OF[source]) != data_hash

    def record_content(self, source: TaskType, data_hash: str) -> bool:
        """Store the hash of a source's data, and return whether it differs from the last one."""
        changed = self.changed(source, data_hash)
        self._set(**{_HASH_OF[source]: data_hash})
        return changed

    def publish(self) -> int:
        """Make the present state the next version, and return its number."""
        if not self.is_complete:
            raise InvariantViolated(
                "INVARIANT_PRODUCT_INCOMPLETE",
                korean="목록, 상세, 옵션이 모두 수집된 상품만 발행할 수 있습니다",
                english="A product can only be published once its listing, detail and options have been seen",
            )
        self._refuse_deleted()
        self._set(version=self.version + 1)
        return self.version

    def resend(self, beyond: int) -> int:
        """The same state under a new number, greater than any that the receiver has; returns that number."""
        if not self.version:
            raise InvariantViolated(
                "INVARIANT_PRODUCT_UNPUBLISHED",
                korean="발행된 적이 없는 상품은 다시 보낼 수 없습니다",
                english="A product that was never published cannot be sent again",
            )
        self._set(version=max(self.version, beyond) + 1)
        return self.version

    def is_deletion_candidate(self, sweeps: int = DELETION_SWEEPS) -> bool:
        """Whether it has been absent long enough to ask the marketplace for it once more."""
        return not self.is_deleted and absent_long_enough(self.absent_sweeps, sweeps)

    def delete(self, at: datetime, *, sweeps: int = DELETION_SWEEPS, approved: bool = False) -> bool:
        """Delete it, by proof or by an admin's approval; returns whether the deletion is a version to publish."""
        self._refuse_deleted()
        if not approved and not self.is_deletion_candidate(sweeps):
            raise InvariantViolated(
                "INVARIANT_PRODUCT_NOT_ABSENT",
                korean=f"전체 수집에서 연속 {sweeps}회 확인되지 않은 상품만 삭제할 수 있습니다",
                english=f"A product can only be deleted after {sweeps} complete sweeps without it",
            )
        # The product server never got an unpublished product, so its deletion is not sent either.
        published = self.version > 0
        self._set(deleted_at=at, version=self.version + published)
        return published

    def restore(self) -> None:
        """It is listed again: the same product continues, with its next version as RESTORED."""
        if not self.is_deleted:
            raise InvariantViolated(
                "INVARIANT_PRODUCT_NOT_DELETED",
                korean="삭제된 상품만 복원할 수 있습니다",
                english="Only a deleted product can be restored",
            )
        self._set(deleted_at=None, absent_sweeps=0)

    def _refuse_deleted(self) -> None:
        if self.is_deleted:
            raise InvariantViolated(
                "INVARIANT_PRODUCT_DELETED",
                korean="이미 삭제된 상품입니다",
                english="The product has been deleted",
            )
