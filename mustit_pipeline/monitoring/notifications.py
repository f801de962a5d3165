"""Telling people of alerts: each once by one sender, again while it goes on, and when it is over."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import uuid4
from zoneinfo import ZoneInfo

import structlog

from mustit_pipeline.foundation.database import Database
from mustit_pipeline.monitoring.channels import Channel, Message, channels
from mustit_pipeline.monitoring.sql import alerts
from mustit_pipeline.monitoring.sql.alerts import Alert, Notice, Told
from mustit_pipeline.settings import Settings

# One message tells of all that is due, so that a bad hour is one message and not a thousand.
AT_ONCE = 1000
LINES = 20
# A sensor's tick has a minute; whom it did not come to, the next one tells.
LONGEST_SECONDS = 30.0
# How long a notice stays with a silent sender: several times as long as one that works may take.
LEASE_SECONDS = 120.0
# An address that fails is tried again so soon, and only that one: the others hear of it again in their own time.
TRY_AGAIN = timedelta(minutes=1)
SEOUL = ZoneInfo("Asia/Seoul")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Telling:
    """Alerts that everybody has been told of, and those that somebody still has to be told of."""

    told: int = 0
    untold: int = 0


def tell(database: Database, settings: Settings, now: datetime, *, longest_seconds: float = LONGEST_SECONDS) -> Telling:
    """Tell every address of every alert that is due; what fails is tried again. Nothing is sent in a transaction."""
    targets = channels(settings.alert_addresses())
    if not targets:
        with database.transaction() as connection:
            alerts.forget_ended(connection)
        return Telling()
    with database.transaction() as connection:
        notices = alerts.claim(connection, owner=str(uuid4()), limit=AT_ONCE, lease_seconds=LEASE_SECONDS, now=now)
    if not notices:
        return Telling()
    due = _Due(now, timedelta(hours=settings.alert_repeat_hours))
    errors = _send(targets, notices, due, longest_seconds)
    outcome = [_told(notice, targets, due, errors) for notice in notices]
    with database.transaction() as connection:
        alerts.settle(connection, outcome)
    told = sum(one.error is None for one in outcome)
    return Telling(told, len(outcome) - told)


@dataclass(frozen=True, slots=True)
class _Due:
    """One telling: what an address has to hear of now, whatever becomes of the others."""

    now: datetime
    repeat: timedelta

    def concerns(self, channel: Channel, notice: Notice) -> bool:
        told_at = notice.reached.get(channel.key)
        if told_at is None:
            return True
        return notice.alert.ended_at is None and told_at + self.repeat <= self.now


def _send(targets: list[Channel], notices: list[Notice], due: _Due, longest_seconds: float) -> dict[str, str]:
    """Tell each address of everything that it has to hear of; says which could not be told, and why."""
    errors: dict[str, str] = {}
    until = time.monotonic() + longest_seconds
    for channel in targets:
        new = [notice.alert for notice in notices if due.concerns(channel, notice)]
        if not new:
            continue
        if time.monotonic() > until:
            errors[channel.key] = f"{channel.name}: there was no time left"
            continue
        error = channel.send(message_of(new))
        if error is not None:
            errors[channel.key] = error
            log.warning("an alert could not be sent; it is tried again", why=error)
    return errors


def _told(notice: Notice, targets: list[Channel], due: _Due, errors: dict[str, str]) -> Told:
    asked = [channel.key for channel in targets if due.concerns(channel, notice)]
    missing = [key for key in asked if key in errors]
    heard = {key: due.now for key in asked if key not in errors}
    # Addresses that are no longer set are forgotten.
    reached = {channel.key: notice.reached[channel.key] for channel in targets if channel.key in notice.reached} | heard
    if missing:
        again_at = due.now + TRY_AGAIN
    else:
        again_at = min(reached.values()) + due.repeat if notice.alert.ended_at is None else None
    return Told(notice, reached, bool(heard), again_at, errors[missing[0]] if missing else None)


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
