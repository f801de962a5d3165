"""Fields of the marketplace that changed their shape: accepted as harmless, or forgotten."""

from typing import Annotated

from fastapi import APIRouter, Query, Response
from sqlalchemy import Connection

from mustit_pipeline.catalog.sql import drift
from mustit_pipeline.catalog.sql.drift import Drift
from mustit_pipeline.console.forms import Sending, Sent, ask
from mustit_pipeline.console.pages.frame import SIZE, by_number, chosen, framed
from mustit_pipeline.console.visits import Visit, Visiting
from mustit_pipeline.domain.drift import DriftKind
from mustit_pipeline.domain.errors import ValidationFailed
from mustit_pipeline.domain.field_paths import FieldPaths
from mustit_pipeline.foundation.clock import utc_now

router = APIRouter(prefix="/drift")


@router.get("")
def list_drift(
    visit: Visiting,
    accepted: str = "",
    q: Annotated[str, Query(max_length=200)] = "",
    kind: str = "",
    page: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
) -> Response:
    """Drift, last seen first; found by part of the field's path, and by what happened."""
    words, wanted = q.replace("\0", "").strip(), chosen(DriftKind, kind)
    with visit.database.reading() as connection:
        found = _matching(connection, accepted == "yes", words, wanted)
        return framed(
            visit,
            connection,
            "drift.html",
            found=found[page * SIZE : (page + 1) * SIZE],
            total=len({one.deviation.path for one in found}),
            accepted=accepted == "yes",
            q=words,
            kind=wanted,
            kinds=list(DriftKind),
            pager=by_number(visit, "/drift", page, len(found), accepted=accepted, q=words, kind=wanted),
        )


def _matching(connection: Connection, accepted: bool, words: str, kind: DriftKind | None) -> list[Drift]:
    """Drift of a filter; the table has a thousand rows at most."""
    every = drift.newest(connection, since=None, accepted=accepted, limit=drift.MOST_ROWS).rows
    return [
        one for one in every if kind in (None, one.deviation.kind) and words.casefold() in one.deviation.path.casefold()
    ]


def _wanted(visit: Visit, sent: Sent) -> FieldPaths:
    """The fields of a form: those that were chosen, or all that match."""
    if sent.text("which") != "all":
        return _paths(sent.all("path"))
    with visit.database.reading() as connection:
        found = _matching(
            connection, sent.text("accepted") == "yes", sent.text("q"), chosen(DriftKind, sent.text("kind"))
        )
    return _paths([one.deviation.path for one in found])


@router.post("/accept")
def accept(visit: Visiting, sent: Sending) -> Response:
    """Accept fields as harmless, once that is confirmed."""
    paths = _wanted(visit, sent)
    if not paths.paths:
        return visit.done(sent.back or "/drift", visit.say("Nothing was chosen."), good=False)
    if not sent.is_confirmed:
        text = visit.say_number(
            "%(number)s field is accepted as harmless.", "%(number)s fields are accepted as harmless.", len(paths.paths)
        )
        return ask(visit, sent, title=visit.say("Accept these fields?"), text=text, action=visit.say("Accept"))
    with visit.audited("drift.accept", drift.target(paths)).transaction() as connection:
        done = drift.accept(connection, paths, utc_now())
    said = visit.say_number(
        "%(number)s field is accepted. Written to the audit log.",
        "%(number)s fields are accepted. Written to the audit log.",
        len(done),
    )
    return visit.done(sent.back or "/drift", said)


@router.post("/forget")
def forget(visit: Visiting, sent: Sending) -> Response:
    """Forget the drift of fields, once that is confirmed; what still differs is recorded again."""
    paths = _wanted(visit, sent)
    if not paths.paths:
        return visit.done(sent.back or "/drift", visit.say("Nothing was chosen."), good=False)
    if not sent.is_confirmed:
        return ask(
            visit,
            sent,
            title=visit.say("Forget this drift?"),
            text=visit.say_number(
                "%(number)s field is forgotten. If it still differs, it is recorded again.",
                "%(number)s fields are forgotten. Those that still differ are recorded again.",
                len(paths.paths),
            ),
            action=visit.say("Forget"),
        )
    with visit.audited("drift.forget", drift.target(paths)).transaction() as connection:
        done = drift.forget(connection, paths)
    said = visit.say_number(
        "%(number)s field is forgotten. Written to the audit log.",
        "%(number)s fields are forgotten. Written to the audit log.",
        len(done),
    )
    return visit.done(sent.back or "/drift", said)


def _paths(given: list[str]) -> FieldPaths:
    try:
        return FieldPaths(",".join(dict.fromkeys(given)))
    except ValueError:
        raise ValidationFailed(
            "VALIDATION_FIELD_PATH",
            korean="올바른 필드 경로가 아닙니다",
            english="That is no path of a field",
        ) from None
