"""Alerts: open ones, and on request those that have ended."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Response

from mustit_pipeline.api.paging import make_time_cursor, read_time_cursor
from mustit_pipeline.console import live
from mustit_pipeline.console.pages.frame import SIZE, by_cursor, framed
from mustit_pipeline.console.reasons import alert_text
from mustit_pipeline.console.visits import Visiting
from mustit_pipeline.monitoring.sql import alerts
from mustit_pipeline.monitoring.sql.activity import Moving
from mustit_pipeline.monitoring.sql.alerts import AlertKey

router = APIRouter(prefix="/alerts")


@router.get("")
def list_alerts(
    visit: Visiting, ended: str = "", cursor: Annotated[str | None, Query(max_length=1024)] = None
) -> Response:
    """Alerts, newest first."""
    behind = None if cursor is None else AlertKey(*read_time_cursor(cursor))
    with visit.database.reading() as connection:
        found = alerts.listed(connection, ended=ended == "yes", limit=SIZE, behind=behind)
        last = found.rows[-1] if found.more else None
        following = None if last is None else make_time_cursor(last.opened_at, last.id)
        return framed(
            visit,
            connection,
            "alerts.html",
            events=live.address(Moving.ALERTS),
            found=found.rows,
            say_alert=partial(alert_text, visit),
            ended=ended == "yes",
            has_addresses=bool(visit.settings.alert_addresses()),
            pager=by_cursor(visit, "/alerts", cursor, following, ended=ended),
        )
