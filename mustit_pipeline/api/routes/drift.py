"""Fields of the marketplace's bodies that changed shape."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import AfterValidator, Field

from mustit_pipeline.api.answers.drift import DriftAnswer
from mustit_pipeline.api.context import Asking
from mustit_pipeline.api.filters import Since
from mustit_pipeline.api.models import Answer, Body, Pages
from mustit_pipeline.api.paging import PageNumber, Size, pages
from mustit_pipeline.catalog.sql import drift
from mustit_pipeline.catalog.sql.drift import MOST_ROWS
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
    return pages([DriftAnswer.of(entry) for entry in shown], len(found), page, size)


@router.post("/accept")
def accept_drift(body: DriftPath, caller: Asking) -> PathsAnswer:
    """Accept a change as harmless: it is still counted, without a warning."""
    wanted = FieldPaths(body.path)
    with caller.audited("drift.accept", drift.target(wanted)).transaction() as connection:
        return PathsAnswer(paths=drift.accept(connection, wanted, utc_now()))


@router.post("/forget")
def forget_drift(body: DriftPath, caller: Asking) -> PathsAnswer:
    """Delete the drift of a field; if it still differs, the next crawl records it again."""
    wanted = FieldPaths(body.path)
    with caller.audited("drift.forget", drift.target(wanted)).transaction() as connection:
        return PathsAnswer(paths=drift.forget(connection, wanted))
