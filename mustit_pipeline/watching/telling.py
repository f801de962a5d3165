"""Telling people of alerts: each once by one sender, again while it goes on, and when it is over."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import uuid4
from zoneinfo import ZoneInfo

import structlog

from mustit_pipeline.settings import Settings
from mustit_pipeline.store import alerts
from mustit_pipeline.store.alerts import Alert, Notice, Told
from mustit_pipeline.store.database import Database
from mustit_pipeline.watching.channels import Channel, Message, channels

# One message tells of all that is due, so that a bad hour is one message and not a thousand.
AT_ONCE = 1000
LINES = 20
# A sensor's tick has a minute; whom it did not come to, the next one tells.
LONGEST_SECONDS = 30.0
SEOUL = ZoneInfo("Asia/Seoul")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Telling:
    """Alerts that everybody has been told of, and those that somebody still has to be told of."""

    told: int = 0
    untold: int = 0


def tell(database: Database, settings: Settings, now: datetime, *, longest_seconds: float = LONGEST_SECONDS) -> Telling:
    """Tell every address of every alert that is due; what fails stays due, and nothing is sent inside a transaction."""
    targets = channels(settings.alert_addresses())
    if not targets:
        with database.transaction() as connection:
            alerts.forget_ended(connection)
        return Telling()
    with database.transaction() as connection:
        notices = alerts.claim(
            connection, owner=str(uuid4()), limit=AT_ONCE, lease_seconds=settings.alert_lease_seconds, now=now
        )
    if not notices:
        return Telling()
    reached, errors = _send(targets, notices, longest_seconds)
    outcome = [_told(notice, targets, reached, errors) for notice in notices]
    with database.transaction() as connection:
        alerts.settle(connection, outcome, now + timedelta(hours=settings.alert_repeat_hours))
    told = sum(one.everybody for one in outcome)
    return Telling(told, len(outcome) - told)


def _send(targets: list[Channel], notices: list[Notice], longest_seconds: float) -> tuple[set[str], dict[str, str]]:
    """Which addresses have now been told of everything that they did not know, and why others have not."""
    reached: set[str] = set()
    errors: dict[str, str] = {}
    until = time.monotonic() + longest_seconds
    for channel in targets:
        if time.monotonic() > until:
            errors[channel.key] = f"{channel.name}: there was no time left"
            continue
        new = [notice.alert for notice in notices if channel.key not in notice.reached]
        error = channel.send(message_of(new)) if new else None
        if error is None:
            reached.add(channel.key)
        else:
            errors[channel.key] = error
            log.warning("an alert could not be sent; it is tried again", why=error)
    return reached, errors


def _told(notice: Notice, targets: list[Channel], reached: set[str], errors: dict[str, str]) -> Told:
    knowing = notice.reached | reached
    missing = [channel.key for channel in targets if channel.key not in knowing]
    return Told(notice, knowing, not missing, errors[missing[0]] if missing else None)


def message_of(told: Sequence[Alert]) -> Message:
    """One alert as itself, several as a list of which the first lines are shown."""
    over = sum(alert.ended_at is not None for alert in told)
    if len(told) == 1:
        [alert] = told
        title = f"Over: {alert.title}" if over else alert.title
        return Message(f"[mustit] {title}", f"{alert.detail}\n{_since(alert)}", good_news=bool(over))
    parts = [f"{len(told) - over} alerts"] * (over < len(told)) + [f"{over} over"] * bool(over)
    lines = [_line(alert) for alert in told[:LINES]]
    if len(told) > LINES:
        lines.append(f"and {len(told) - LINES} more: `mustit alerts list`")
    return Message(f"[mustit] {', '.join(parts)}", "\n".join(lines), good_news=over == len(told))


def _line(alert: Alert) -> str:
    return f"- {'Over: ' if alert.ended_at is not None else ''}{alert.title}: {alert.detail} ({_since(alert)})"


def _since(alert: Alert) -> str:
    begun = alert.opened_at.astimezone(SEOUL).strftime("%m-%d %H:%M")
    if alert.ended_at is None:
        return f"since {begun} in Seoul"
    return f"from {begun} to {alert.ended_at.astimezone(SEOUL).strftime('%m-%d %H:%M')} in Seoul"
