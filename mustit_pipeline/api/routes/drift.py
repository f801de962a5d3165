"""Fields of the marketplace's bodies that changed shape."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import AfterValidator, Field

from mustit_pipeline.api.context import Asking
from mustit_pipeline.api.filters import Since
from mustit_pipeline.api.models import Answer, Body, Pages, Time
from mustit_pipeline.api.paging import PageNumber, Size, pages
from mustit_pipeline.catalog.sql import drift
from mustit_pipeline.catalog.sql.drift import MOST_ROWS, Drift
from mustit_pipeline.domain.drift import DriftKind
from mustit_pipeline.domain.field_paths import SOURCES, FieldPaths
from mustit_pipeline.foundation.clock import utc_now

router = APIRouter(prefix="/drift", tags=["drift"])

_PATH = rf"^({'|'.join(SOURCES)}|[\w-]*\*[\w*-]*)(\.[\w*-]+)*$"


class DriftPath(Body):
    """A field, with everything below it; `*` is any text."""

    path: Annotated[
        str,
        Field(max_length=500, pattern=_PATH, examples=["detail.ProductInfoModule.couponList"]),
        AfterValidator(FieldPaths.checked),
    ]


class DriftAnswer(Answer):
    """A field that is new, missing or of another type."""

    path: str = Field(examples=["detail.ProductInfoModule.couponList"])
    kind: DriftKind
    expected: str = Field(examples=[""])
    observed: str = Field(examples=["array"])
    sample: str = Field(examples=["[]"])
    count: int = Field(description="Bodies that show it", examples=[12])
    first_seen_at: Time = Field(examples=["2026-11-16T00:00:00+00:00"])
    last_seen_at: Time = Field(examples=["2026-11-17T00:00:00+00:00"])
    seller_id: str = Field(examples=["dmont"])
    item_no: int | None = Field(examples=[118005032])
    accepted_at: Time | None = Field(examples=[None])


class PathsAnswer(Answer):
    """The fields that were meant."""

    paths: list[str] = Field(examples=[["detail.ProductInfoModule.couponList"]])


@router.get("")
def list_drift(
    caller: Asking,
    since: Since = None,
    everything: Annotated[bool, Query(alias="all", description="Accepted ones too")] = False,
    page: PageNumber = 0,
    size: Size = 20,
) -> Pages[DriftAnswer]:
    """Fields that are new, missing or of another type, last seen first; at most 1,000 are kept."""
    with caller.database.reading() as connection:
        found = drift.newest(connection, since=since, accepted=everything, limit=MOST_ROWS).rows
    shown = found[page * size : (page + 1) * size]
    return pages([_answer(entry) for entry in shown], len(found), page, size)


@router.post("/accept")
def accept_drift(body: DriftPath, caller: Asking) -> PathsAnswer:
    """Accept a change as harmless: it is still counted, without a warning."""
    wanted = FieldPaths(body.path)
    with caller.audited("drift.accept", f"drift {body.path}", drift.look(wanted)).transaction() as connection:
        return PathsAnswer(paths=drift.accept(connection, wanted, utc_now()))


@router.post("/forget")
def forget_drift(body: DriftPath, caller: Asking) -> PathsAnswer:
    """Delete the drift of a field; if it still differs, the next crawl records it again."""
    wanted = FieldPaths(body.path)
    with caller.audited("drift.forget", f"drift {body.path}", drift.look(wanted)).transaction() as connection:
        return PathsAnswer(paths=drift.forget(connection, wanted))


def _answer(entry: Drift) -> DriftAnswer:
    return DriftAnswer(
        path=entry.deviation.path,
        kind=entry.deviation.kind,
        expected=entry.deviation.expected,
        observed=entry.deviation.observed,
        sample=entry.deviation.sample,
        count=entry.count,
        first_seen_at=entry.first_seen_at,
        last_seen_at=entry.last_seen_at,
        seller_id=entry.seller_id,
        item_no=entry.item_no,
        accepted_at=entry.accepted_at,
    )
