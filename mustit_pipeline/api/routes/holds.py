"""Change holds: changes held back because too many of a seller's products looked wrong at once."""

from fastapi import APIRouter
from pydantic import Field

from mustit_pipeline.api.context import Asking
from mustit_pipeline.api.filters import SellerInQuery, require_known
from mustit_pipeline.api.models import Answer, Pages, Time
from mustit_pipeline.api.paging import PageNumber, Size, pages
from mustit_pipeline.api.paths import SellerInPath
from mustit_pipeline.catalog import releasing
from mustit_pipeline.catalog.sql import change_holds
from mustit_pipeline.domain.change_hold import ChangeHold
from mustit_pipeline.domain.states import ChangeHoldStatus
from mustit_pipeline.foundation.clock import utc_now

router = APIRouter(prefix="/holds", tags=["change holds"])


class ChangeHoldAnswer(Answer):
    """One seller's changes, unpublished until they look right again or an admin releases them."""

    hold_id: str = Field(examples=["5e0d2a91-6c4b-4d1e-8f3a-7b2c1d0e9f8a"])
    seller_id: str = Field(examples=["dmont"])
    status: ChangeHoldStatus
    jumped: int = Field(description="Products whose price jumps", examples=[120])
    emptied: int = Field(description="Products that lose fields they live by", examples=[3])
    suspicious: int = Field(examples=[121])
    looked_at: int = Field(examples=[400])
    share: float = Field(description="Suspicious products of those looked at, in percent", examples=[30.25])
    examples: list[int] = Field(description="Item numbers", examples=[[118005032]])
    opened_at: Time
    closed_at: Time | None


class Released(Answer):
    """What was published."""

    seller_id: str = Field(examples=["dmont"])
    published: int = Field(description="Versions", examples=[121])
    changes: dict[str, int] = Field(examples=[{"PRICE": 121}])


@router.get("")
def list_change_holds(
    caller: Asking,
    seller_id: SellerInQuery,
    status: ChangeHoldStatus | None = None,
    page: PageNumber = 0,
    size: Size = 20,
) -> Pages[ChangeHoldAnswer]:
    """Change holds, open ones first, then the newest."""
    with caller.database.reading() as connection:
        require_known(connection, seller_id)
        found = change_holds.newest(connection, status=status, seller_id=seller_id, first=page * size, limit=size)
        total = change_holds.count(connection, status=status, seller_id=seller_id)
    return pages([_answer(hold) for hold in found.rows], total, page, size)


@router.post("/{sellerId}/release")
def release_changes(seller_id: SellerInPath, caller: Asking) -> Released:
    """Publish a seller's held changes, after some of them were checked on the marketplace."""
    database = caller.audited("hold.release", f"change hold of {seller_id}", releasing.look(seller_id))
    report = releasing.release(database, seller_id, now=utc_now)
    return Released(seller_id=seller_id.value, published=sum(report.versions.values()), changes=dict(report.changes))


def _answer(hold: ChangeHold) -> ChangeHoldAnswer:
    found = hold.suspicion
    return ChangeHoldAnswer(
        hold_id=str(hold.id),
        seller_id=hold.seller_id.value,
        status=hold.status,
        jumped=found.jumped,
        emptied=found.emptied,
        suspicious=found.suspicious,
        looked_at=found.looked_at,
        share=round(found.share, 2),
        examples=list(found.examples),
        opened_at=hold.opened_at,
        closed_at=hold.closed_at,
    )
