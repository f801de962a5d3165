"""What changed on the marketplace, newest first."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from mustit_pipeline.api.paging import make_time_cursor, read_time_cursor
from mustit_pipeline.catalog.sql import history
from mustit_pipeline.catalog.sql.history import ChangeFilter, ChangeKey
from mustit_pipeline.console import live
from mustit_pipeline.console.pages.frame import SIZE, by_cursor, framed, seller_or_none
from mustit_pipeline.console.visits import Visiting
from mustit_pipeline.domain.errors import ValidationFailed
from mustit_pipeline.domain.filters import ChangeKind, read_since
from mustit_pipeline.domain.states import ChangeType, LifeCycle
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.monitoring.sql.activity import Moving

KINDS = (*ChangeType, LifeCycle.CREATED, LifeCycle.DELETED, LifeCycle.RESTORED)

router = APIRouter(prefix="/changes")


@router.get("")
def list_changes(
    visit: Visiting,
    seller: Annotated[str, Query(max_length=200)] = "",
    kind: Annotated[str, Query(alias="type", max_length=40)] = "",
    since: Annotated[str, Query(max_length=40)] = "",
    cursor: Annotated[str | None, Query(max_length=1024)] = None,
) -> Response:
    """Changes, with filters."""
    error = None
    try:
        moment = read_since(since, utc_now()) if since.strip() else None
    except ValidationFailed as refused:
        moment, error = None, refused.message(visit.language)
    wanted = ChangeFilter(
        seller_id=seller_or_none(seller),
        since=moment,
        kind=ChangeKind.parse(kind) if kind in set(KINDS) else None,
    )
    behind = None if cursor is None else ChangeKey(*read_time_cursor(cursor))
    with visit.database.reading() as connection:
        found = history.search_changes(connection, wanted, behind=behind, limit=SIZE)
        following = None if found.behind is None else make_time_cursor(found.behind.detected_at, found.behind.id)
        return framed(
            visit,
            connection,
            "changes.html",
            events=live.address(Moving.CHANGES) if cursor is None else None,
            found=found.rows,
            goes_on=found.behind is not None and len(found.rows) < SIZE,
            error=error,
            seller=seller,
            kind=kind,
            kinds=KINDS,
            since=since,
            pager=by_cursor(visit, "/changes", cursor, following, seller=seller, type=kind, since=since),
        )
