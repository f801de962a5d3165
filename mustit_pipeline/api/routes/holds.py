"""Change holds: changes held back because too many of a seller's products looked wrong at once."""

from fastapi import APIRouter
from pydantic import Field

from mustit_pipeline.api.answers.holds import ChangeHoldAnswer
from mustit_pipeline.api.context import Asking
from mustit_pipeline.api.filters import SellerInQuery, require_known
from mustit_pipeline.api.models import Answer, Pages
from mustit_pipeline.api.paging import PageNumber, Size, pages
from mustit_pipeline.api.paths import SellerInPath
from mustit_pipeline.catalog import releasing
from mustit_pipeline.catalog.sql import change_holds
from mustit_pipeline.domain.states import ChangeHoldStatus
from mustit_pipeline.foundation.clock import utc_now

router = APIRouter(prefix="/holds", tags=["change holds"])


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
    return pages([ChangeHoldAnswer.of(hold) for hold in found.rows], total, page, size)


@router.post("/{sellerId}/release")
def release_changes(seller_id: SellerInPath, caller: Asking) -> Released:
    """Publish a seller's held changes, after some of them were checked on the marketplace."""
    database = caller.audited("hold.release", releasing.target(seller_id))
    report = releasing.release(database, seller_id, now=utc_now)
    return Released(seller_id=seller_id.value, published=sum(report.versions.values()), changes=dict(report.changes))
