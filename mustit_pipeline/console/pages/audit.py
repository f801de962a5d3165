"""The audit log: who changed what, when, from what to what."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from mustit_pipeline.access.sql import audit_log
from mustit_pipeline.access.sql.audit_log import AuditFilter
from mustit_pipeline.api.paging import make_cursor, read_cursor
from mustit_pipeline.console.pages.frame import SIZE, by_cursor, framed
from mustit_pipeline.console.visits import Visiting

router = APIRouter(prefix="/audit")

Word = Annotated[str, Query(max_length=300)]


@router.get("")
def list_entries(
    visit: Visiting,
    actor: Word = "",
    action: Word = "",
    target: Word = "",
    cursor: Annotated[str | None, Query(max_length=200)] = None,
) -> Response:
    """Entries, newest first."""
    given = {"actor": actor, "action": action, "target": target}
    words = {name: value.replace("\0", "").strip() for name, value in given.items()}
    wanted = AuditFilter(words["actor"] or None, words["action"] or None, words["target"] or None)
    before = None if cursor is None else int(read_cursor(cursor, (int,))[0])
    with visit.database.reading() as connection:
        found = audit_log.newest(connection, wanted, limit=SIZE, before_id=before)
        following = make_cursor(found.rows[-1].id) if found.more else None
        return framed(
            visit,
            connection,
            "audit.html",
            found=found.rows,
            words=words,
            pager=by_cursor(visit, "/audit", cursor, following, **words),
        )
