"""What changed on the marketplace: one entry for each version of a product."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import Field

from mustit_pipeline.api.context import Asking
from mustit_pipeline.api.filters import SellerInQuery, Since, Until, require_known
from mustit_pipeline.api.models import Answer, CursorPage, Time
from mustit_pipeline.api.paging import Cursor, Size, make_time_cursor, read_time_cursor
from mustit_pipeline.catalog.sql import history
from mustit_pipeline.catalog.sql.history import ChangeFilter, ChangeKey, ChangeSet
from mustit_pipeline.domain.filters import ChangeKind
from mustit_pipeline.domain.states import ChangeType, LifeCycle

router = APIRouter(prefix="/changes", tags=["changes"])

Type = Literal["PRICE", "STOCK", "OPTION", "IMAGE", "DESCRIPTION", "PRODUCT_INFO", "CREATED", "DELETED", "RESTORED"]


class ChangedField(Answer):
    """One field's old and new value."""

    type: ChangeType
    field: str = Field(examples=["discountPrice"])
    old: Any = Field(examples=[565100])
    new: Any = Field(examples=[540000])


class ChangeSetAnswer(Answer):
    """The changes of one version; `name` is the product's name in it."""

    seller_id: str = Field(examples=["dmont"])
    item_no: int = Field(examples=[118005032])
    name: str | None = Field(examples=["MINI BACKPACK"])
    version: int = Field(examples=[2])
    life_cycle: LifeCycle
    change_types: list[ChangeType]
    changes: list[ChangedField]
    execution_id: str = Field(examples=["0197f2a4-0000-7000-8000-000000000001"])
    detected_at: Time = Field(examples=["2026-11-17T00:00:00+00:00"])


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
    return CursorPage(content=[change_set_answer(one) for one in found.rows], size=size, next_cursor=following)


def change_set_answer(found: ChangeSet) -> ChangeSetAnswer:
    """A version's change set."""
    return ChangeSetAnswer(
        seller_id=found.seller_id,
        item_no=found.item_no,
        name=found.name,
        version=found.version,
        life_cycle=found.life_cycle,
        change_types=[ChangeType(one) for one in found.change_types],
        changes=changed_fields(found.changes),
        execution_id=str(found.execution_id),
        detected_at=found.detected_at,
    )


def changed_fields(changes: Iterable[Mapping[str, Any]]) -> list[ChangedField]:
    """Changes in the JSON form of events."""
    return [
        ChangedField(type=ChangeType(one["type"]), field=one["field"], old=one["old"], new=one["new"])
        for one in changes
    ]
