"""Events for the product server: what waits or failed, and failed ones sent again."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path, Query
from pydantic import Field

from mustit_pipeline.api.answers.outbox import EventAnswer, EventDetail
from mustit_pipeline.api.context import Asking
from mustit_pipeline.api.filters import SellerInQuery, require_known
from mustit_pipeline.api.models import Answer, CursorPage
from mustit_pipeline.api.paging import Cursor, Size, make_time_cursor, read_time_cursor
from mustit_pipeline.catalog.sql import history
from mustit_pipeline.domain.filters import IdPrefix
from mustit_pipeline.domain.states import OutboxStatus
from mustit_pipeline.outbox.sql import outbox_list
from mustit_pipeline.outbox.sql.outbox_list import OutboxKey

router = APIRouter(prefix="/outbox", tags=["outbox"])

Id = Annotated[UUID, Path(alias="outboxId", examples=["0b6f13c2-0000-4000-8000-000000000002"])]


class RetriedAnswer(Answer):
    """How many failed events wait again, and how many a newer version has replaced."""

    retried: int = Field(examples=[3])
    superseded: int = Field(examples=[1])


@router.get("")
def list_events(
    caller: Asking,
    seller_id: SellerInQuery,
    status: OutboxStatus | None = None,
    cursor: Cursor = None,
    size: Size = 20,
) -> CursorPage[EventAnswer]:
    """Events, newest first, with the product server's last answer."""
    behind = None if cursor is None else OutboxKey(*read_time_cursor(cursor))
    with caller.database.reading() as connection:
        require_known(connection, seller_id)
        found = outbox_list.newest(connection, status=status, seller_id=seller_id, limit=size, behind=behind)
    following = make_time_cursor(found.rows[-1].created_at, found.rows[-1].outbox_id) if found.more else None
    return CursorPage(content=[EventAnswer.of(one) for one in found.rows], size=size, next_cursor=following)


@router.post("/retry")
def retry_events(
    caller: Asking,
    seller_id: SellerInQuery,
    status: Annotated[OutboxStatus, Query(description="FAILED: no other state can be retried")] = OutboxStatus.FAILED,
) -> RetriedAnswer:
    """Send all failed events again, with all their tries; one whose product has a newer version is not sent."""
    with caller.database.reading() as connection:
        require_known(connection, seller_id)
    audited = caller.audited("outbox.retry", outbox_list.target_of_failed(seller_id))
    with audited.transaction() as connection:
        done = outbox_list.retry_all(connection, status=status, seller_id=seller_id)
    return RetriedAnswer(retried=len(done.waiting), superseded=len(done.superseded))


@router.get("/{outboxId:uuid}")
def show_event(outbox_id: Id, caller: Asking) -> EventDetail:
    """One event: what it says, its tries and its state."""
    with caller.database.reading() as connection:
        entry = outbox_list.find(connection, IdPrefix(str(outbox_id)))
        version = history.version(connection, entry.seller_id, entry.item_no, entry.version)
    return EventDetail.whole(entry, version)


@router.post("/{outboxId:uuid}/retry")
def retry_event(outbox_id: Id, caller: Asking) -> EventAnswer:
    """Send one failed event again, with all its tries; a newer version of its product replaces it."""
    wanted = IdPrefix(str(outbox_id))
    with caller.audited("outbox.retry", outbox_list.target(outbox_id)).transaction() as connection:
        outbox_list.retry_one(connection, wanted)
        return EventAnswer.of(outbox_list.find(connection, wanted))
