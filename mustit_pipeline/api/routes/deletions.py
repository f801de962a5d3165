"""Deletion holds: deletions held back because they were too many at once."""

from typing import Any

from fastapi import APIRouter
from pydantic import Field

from mustit_pipeline.api.context import Asking, Caller
from mustit_pipeline.api.filters import SellerInQuery, require_known
from mustit_pipeline.api.models import Answer, Pages, Time
from mustit_pipeline.api.paging import PageNumber, Size, pages
from mustit_pipeline.api.paths import IdInPath
from mustit_pipeline.catalog import deletion
from mustit_pipeline.catalog.deletion import Decision
from mustit_pipeline.catalog.sql import deletions
from mustit_pipeline.domain.deletion import DeletionHold
from mustit_pipeline.domain.filters import IdPrefix
from mustit_pipeline.domain.states import HoldStatus
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database

router = APIRouter(prefix="/deletions", tags=["deletion holds"])


class DeletionHoldAnswer(Answer):
    """Products missing from one seller's sweep, too many at once to be believed."""

    hold_id: str = Field(examples=["5e0d2a91-6c4b-4d1e-8f3a-7b2c1d0e9f8a"])
    seller_id: str = Field(examples=["dmont"])
    execution_id: str
    status: HoldStatus
    live_count: int = Field(description="Products of the seller before the sweep", examples=[400])
    held_count: int = Field(examples=[130])
    share: float = Field(description="Held products of the live ones, in percent", examples=[32.5])
    opened_at: Time
    closed_at: Time | None


class DeletionHoldDetail(DeletionHoldAnswer):
    """A hold with its products."""

    item_nos: list[int] = Field(examples=[[118005032]])
    still_absent: list[int] = Field(description="What an approval would delete; empty when it is decided")


class DecisionAnswer(DeletionHoldAnswer):
    """How a hold ended."""

    deleted: list[int] = Field(description="Item numbers", examples=[[118005032]])
    kept_count: int = Field(description="Products of the hold that stay", examples=[0])


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
    return pages([DeletionHoldAnswer(**_fields(hold)) for hold in found.rows], total, page, size)


@router.get("/{id}")
def show_deletion_hold(wanted: IdInPath, caller: Asking) -> DeletionHoldDetail:
    """One hold with the products that an approval would delete."""
    with caller.database.reading() as connection:
        hold = deletions.find_hold(connection, wanted)
        absent = deletions.still_absent(connection, hold) if hold.status is HoldStatus.OPEN else []
    return DeletionHoldDetail(**_fields(hold), item_nos=list(hold.item_nos), still_absent=absent)


@router.post("/{id}/approve")
def approve_deletions(wanted: IdInPath, caller: Asking) -> DecisionAnswer:
    """Delete the hold's products that are still absent; products that were seen again stay."""
    hold = _find(caller, wanted)
    return _decision(deletion.approve(_audited(caller, "deletion.approve", hold), IdPrefix(str(hold.id)), utc_now()))


@router.post("/{id}/reject")
def reject_deletions(wanted: IdInPath, caller: Asking) -> DecisionAnswer:
    """Close a hold and delete nothing; a sweep that still misses too many products opens the next hold."""
    hold = _find(caller, wanted)
    return _decision(deletion.reject(_audited(caller, "deletion.reject", hold), IdPrefix(str(hold.id)), utc_now()))


def _find(caller: Caller, wanted: IdPrefix) -> DeletionHold:
    with caller.database.reading() as connection:
        return deletions.find_hold(connection, wanted)


def _audited(caller: Caller, action: str, hold: DeletionHold) -> Database:
    return caller.audited(action, f"deletion hold {hold.id}", deletion.look(hold.id))


def _decision(decision: Decision) -> DecisionAnswer:
    return DecisionAnswer(**_fields(decision.hold), deleted=decision.deleted, kept_count=decision.kept)


def _fields(hold: DeletionHold) -> dict[str, Any]:
    return {
        "hold_id": str(hold.id),
        "seller_id": hold.seller_id.value,
        "execution_id": str(hold.execution_id),
        "status": hold.status,
        "live_count": hold.live_count,
        "held_count": len(hold.item_nos),
        "share": round(hold.share, 2),
        "opened_at": hold.opened_at,
        "closed_at": hold.closed_at,
    }
