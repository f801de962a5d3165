"""Fields of the marketplace that changed their shape: accepted as harmless, or forgotten."""

from fastapi import APIRouter, Response

from mustit_pipeline.catalog.sql import drift
from mustit_pipeline.console.forms import Sending, ask
from mustit_pipeline.console.pages.frame import framed
from mustit_pipeline.console.visits import Visiting
from mustit_pipeline.domain.errors import ValidationFailed
from mustit_pipeline.domain.field_paths import FieldPaths
from mustit_pipeline.foundation.clock import utc_now

SHOWN = 200

router = APIRouter(prefix="/drift")


@router.get("")
def list_drift(visit: Visiting, accepted: str = "") -> Response:
    """Drift, last seen first."""
    with visit.database.reading() as connection:
        found = drift.newest(connection, since=None, accepted=accepted == "yes", limit=SHOWN)
        return framed(visit, connection, "drift.html", found=found.rows, more=found.more, accepted=accepted == "yes")


@router.post("/accept")
def accept(visit: Visiting, sent: Sending) -> Response:
    """Accept fields as harmless; forgetting undoes it."""
    paths = _paths(sent.all("path"))
    if not paths.paths:
        return visit.done(sent.back or "/drift", visit.say("No field was chosen."), good=False)
    with visit.audited("drift.accept", f"drift {','.join(paths.paths)}", drift.look(paths)).transaction() as connection:
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
    paths = _paths(sent.all("path"))
    if not paths.paths:
        return visit.done(sent.back or "/drift", visit.say("No field was chosen."), good=False)
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
    with visit.audited("drift.forget", f"drift {','.join(paths.paths)}", drift.look(paths)).transaction() as connection:
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
