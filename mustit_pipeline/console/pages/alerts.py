"""Alerts: open ones, and on request those that have ended."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Response

from mustit_pipeline.api.paging import make_time_cursor, read_time_cursor
from mustit_pipeline.console import live
from mustit_pipeline.console.dagster_proxy import PREFIX
from mustit_pipeline.console.languages import marked
from mustit_pipeline.console.pages.frame import SIZE, by_cursor, framed
from mustit_pipeline.console.reasons import alert_text
from mustit_pipeline.console.visits import Visiting
from mustit_pipeline.monitoring import alerting
from mustit_pipeline.monitoring.sql import alerts
from mustit_pipeline.monitoring.sql.activity import Moving
from mustit_pipeline.monitoring.sql.alerts import AlertKey

router = APIRouter(prefix="/alerts")


@dataclass(frozen=True, slots=True)
class Place:
    """The page on which an alert's problem is looked at and ended."""

    address: str
    text: str


_AGENTS = Place("/agents", marked("See the agents"))
_DAGSTER = Place(f"{PREFIX}/", marked("See Dagster"))
PLACES = {
    alerting.HELD_DELETIONS: Place("/deletions", marked("Decide on deletions")),
    alerting.HELD_CHANGES: Place("/holds", marked("Decide on changes")),
    alerting.FAILED_EVENTS: Place("/outbox?status=FAILED", marked("See failed events")),
    alerting.CREDENTIAL_REFUSED: Place("/outbox", marked("See events")),
    alerting.INCOMPLETE_SWEEP: Place("/executions", marked("See crawls")),
    alerting.BREAKER_OPEN: _AGENTS,
    alerting.THROTTLED: _AGENTS,
    alerting.RUN_FAILED: _DAGSTER,
    alerting.CHECK_FAILED: _DAGSTER,
    alerting.TICK_FAILED: _DAGSTER,
    alerting.SCHEDULE_FAILED: _DAGSTER,
}


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
            places=PLACES,
            say_alert=partial(alert_text, visit),
            ended=ended == "yes",
            has_addresses=bool(visit.settings.alert_addresses()),
            pager=by_cursor(visit, "/alerts", cursor, following, ended=ended),
        )
