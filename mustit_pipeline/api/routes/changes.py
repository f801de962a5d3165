"""What changed on the marketplace: one entry for each version of a product."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query

from mustit_pipeline.api.answers.changes import ChangeSetAnswer
from mustit_pipeline.api.context import Asking
from mustit_pipeline.api.filters import SellerInQuery, Since, Until, require_known
from mustit_pipeline.api.models import CursorPage
from mustit_pipeline.api.paging import Cursor, Size, make_time_cursor, read_time_cursor
from mustit_pipeline.catalog.sql import history
from mustit_pipeline.catalog.sql.history import ChangeFilter, ChangeKey
from mustit_pipeline.domain.filters import ChangeKind

router = APIRouter(prefix="/changes", tags=["changes"])

Type = Literal["PRICE", "STOCK", "OPTION", "IMAGE", "DESCRIPTION", "PRODUCT_INFO", "CREATED", "DELETED", "RESTORED"]


@router.get("")
def list_changes(
    caller: Asking,
    seller_id: SellerInQuery,
    *,
    since: Since = None,
    until: Until = None,
    kind: Annotated[
        Type | None, Query(alias="type", description="A type of field change, or a step of a product's life")
    ] = None,
    cursor: Cursor = None,
    size: Size = 20,
) -> CursorPage[ChangeSetAnswer]:
    """What changed, newest first. A search for a type reads 2,000 changes at a time: a page may hold few entries, or
    none, while `nextCursor` goes on.
    """
    behind = None if cursor is None else ChangeKey(*read_time_cursor(cursor))
    wanted = ChangeFilter(seller_id, since, until, None if kind is None else ChangeKind.parse(kind))
    with caller.database.reading() as connection:
        require_known(connection, seller_id)
        found = history.search_changes(connection, wanted, behind=behind, limit=size)
    following = None if found.behind is None else make_time_cursor(found.behind.detected_at, found.behind.id)
    return CursorPage(content=[ChangeSetAnswer.of(one) for one in found.rows], size=size, next_cursor=following)
