"""Alerts: open problems, and ended ones."""

from enum import StrEnum

from fastapi import APIRouter
from pydantic import Field

from mustit_pipeline.api.context import Asking
from mustit_pipeline.api.models import Answer, CursorPage, Time
from mustit_pipeline.api.paging import Cursor, Size, make_time_cursor, read_time_cursor
from mustit_pipeline.monitoring.sql import alerts
from mustit_pipeline.monitoring.sql.alerts import Alert, AlertKey

router = APIRouter(prefix="/alerts", tags=["alerts"])


class AlertStatus(StrEnum):
    """Whether the problem is still there."""

    OPEN = "OPEN"
    ENDED = "ENDED"


class AlertAnswer(Answer):
    """A problem: since when it is there, and how often it was sent."""

    alert_id: str = Field(examples=["3a1d7c55-0000-4000-8000-000000000004"])
    subject: str = Field(examples=["seller dmont"])
    kind: str = Field(examples=["RUN_FAILED"])
    title: str = Field(examples=["The crawl of dmont failed"])
    detail: str = Field(examples=["3 of 20 tasks failed"])
    opened_at: Time = Field(examples=["2026-11-17T00:00:00+00:00"])
    last_seen_at: Time = Field(examples=["2026-11-17T01:00:00+00:00"])
    ended_at: Time | None = Field(examples=[None])
    notices: int = Field(description="Times that it was sent", examples=[1])
    last_error: str | None = Field(description="Why it could not be sent", examples=[None])


@router.get("")
def list_alerts(
    caller: Asking, status: AlertStatus = AlertStatus.OPEN, cursor: Cursor = None, size: Size = 20
) -> CursorPage[AlertAnswer]:
    """Alerts, newest first; open ones unless `status` says otherwise."""
    behind = None if cursor is None else AlertKey(*read_time_cursor(cursor))
    with caller.database.reading() as connection:
        found = alerts.listed(connection, ended=status is AlertStatus.ENDED, limit=size, behind=behind)
    following = make_time_cursor(found.rows[-1].opened_at, found.rows[-1].id) if found.more else None
    return CursorPage(content=[_answer(alert) for alert in found.rows], size=size, next_cursor=following)


def _answer(alert: Alert) -> AlertAnswer:
    return AlertAnswer(
        alert_id=str(alert.id),
        subject=alert.subject,
        kind=alert.kind,
        title=alert.title,
        detail=alert.detail,
        opened_at=alert.opened_at,
        last_seen_at=alert.last_seen_at,
        ended_at=alert.ended_at,
        notices=alert.notices,
        last_error=alert.last_error,
    )
