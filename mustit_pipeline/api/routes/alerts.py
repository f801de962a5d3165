"""Alerts: open problems, and ended ones."""

from enum import StrEnum

from fastapi import APIRouter

from mustit_pipeline.api.answers.alerts import AlertAnswer
from mustit_pipeline.api.context import Asking
from mustit_pipeline.api.models import CursorPage
from mustit_pipeline.api.paging import Cursor, Size, make_time_cursor, read_time_cursor
from mustit_pipeline.monitoring.sql import alerts
from mustit_pipeline.monitoring.sql.alerts import AlertKey

router = APIRouter(prefix="/alerts", tags=["alerts"])


class AlertStatus(StrEnum):
    """Whether the problem is still there."""

    OPEN = "OPEN"
    ENDED = "ENDED"


@router.get("")
def list_alerts(
    caller: Asking, status: AlertStatus = AlertStatus.OPEN, cursor: Cursor = None, size: Size = 20
) -> CursorPage[AlertAnswer]:
    """Alerts, newest first; open ones unless `status` says otherwise."""
    behind = None if cursor is None else AlertKey(*read_time_cursor(cursor))
    with caller.database.reading() as connection:
        found = alerts.listed(connection, ended=status is AlertStatus.ENDED, limit=size, behind=behind)
    following = make_time_cursor(found.rows[-1].opened_at, found.rows[-1].id) if found.more else None
    return CursorPage(content=[AlertAnswer.of(alert) for alert in found.rows], size=size, next_cursor=following)
