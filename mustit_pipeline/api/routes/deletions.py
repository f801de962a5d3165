"""Deletion holds: deletions held back because they were too many at once."""

from fastapi import APIRouter

from mustit_pipeline.api.answers.deletions import DecisionAnswer, DeletionHoldAnswer, DeletionHoldDetail
from mustit_pipeline.api.context import Asking, Caller
from mustit_pipeline.api.filters import SellerInQuery, require_known
from mustit_pipeline.api.models import Pages
from mustit_pipeline.api.paging import PageNumber, Size, pages
from mustit_pipeline.api.paths import IdInPath
from mustit_pipeline.catalog import deletion
from mustit_pipeline.catalog.sql import deletions
from mustit_pipeline.domain.deletion import DeletionHold
from mustit_pipeline.domain.filters import IdPrefix
from mustit_pipeline.domain.states import HoldStatus
from mustit_pipeline.foundation.clock import utc_now

router = APIRouter(prefix="/deletions", tags=["deletion holds"])


@router.get("")
def list_deletion_holds(
    caller: Asking,
    seller_id: SellerInQuery,
    status: HoldStatus | None = None,
    page: PageNumber = 0,
    size: Size = 20,
) -> Pages[DeletionHoldAnswer]:
    """Deletion holds, open ones first, then the newest."""
    with caller.database.reading() as connection:
        require_known(connection, seller_id)
        found = deletions.newest_holds(connection, status=status, seller_id=seller_id, first=page * size, limit=size)
        total = deletions.count_holds(connection, status=status, seller_id=seller_id)
    return pages([DeletionHoldAnswer.of(hold) for hold in found.rows], total, page, size)


@router.get("/{id}")
def show_deletion_hold(wanted: IdInPath, caller: Asking) -> DeletionHoldDetail:
    """One hold with the products that an approval would delete."""
    with caller.database.reading() as connection:
        hold = deletions.find_hold(connection, wanted)
        absent = deletions.still_absent(connection, hold) if hold.status is HoldStatus.OPEN else []
    return DeletionHoldDetail.whole(hold, absent)


@router.post("/{id}/approve")
def approve_deletions(wanted: IdInPath, caller: Asking) -> DecisionAnswer:
    """Delete the hold's products that are still absent; products that were seen again stay."""
    hold = _find(caller, wanted)
    return DecisionAnswer.whole(
        deletion.approve(
            caller.audited("deletion.approve", deletion.target(hold.id)), IdPrefix(str(hold.id)), utc_now()
        )
    )


@router.post("/{id}/reject")
def reject_deletions(wanted: IdInPath, caller: Asking) -> DecisionAnswer:
    """Close a hold and delete nothing; a sweep that still misses too many products opens the next hold."""
    hold = _find(caller, wanted)
    return DecisionAnswer.whole(
        deletion.reject(caller.audited("deletion.reject", deletion.target(hold.id)), IdPrefix(str(hold.id)), utc_now())
    )


def _find(caller: Caller, wanted: IdPrefix) -> DeletionHold:
    with caller.database.reading() as connection:
        return deletions.find_hold(connection, wanted)
