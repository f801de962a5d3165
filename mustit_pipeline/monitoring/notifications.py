"""Notifications of alerts: sent once by one sender, again while the alert is open, and when it ends."""

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
from mustit_pipeline.monitoring.sql.alerts import Alert, Notice, Notified
from mustit_pipeline.settings import Settings

# One message holds all due alerts, so that a bad hour is one message and not a thousand.
AT_ONCE = 1000
LINES = 20
# A sensor's tick has a minute; the next tick sends to the remaining addresses.
LONGEST_SECONDS = 30.0
# How long a notice stays with a silent sender: several times as long as one that works may take.
LEASE_SECONDS = 120.0
# An address that fails is tried again so soon, and only that one: the others hear of it again in their own time.
TRY_AGAIN = timedelta(minutes=1)
SEOUL = ZoneInfo("Asia/Seoul")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Notifications:
    """The number of alerts that every address has got, and of those that an address still has to get."""

    sent: int = 0
    unsent: int = 0


def notify(
    database: Database, settings: Settings, now: datetime, *, longest_seconds: float = LONGEST_SECONDS
) -> Notifications:
    """Send every due alert to every address; failures are retried. Nothing is sent inside a transaction."""
    targets = channels(settings.alert_addresses())
    if not targets:
        with database.transaction() as connection:
            alerts.forget_ended(connection)
        return Notifications()
    with database.transaction() as connection:
        notices = alerts.claim(connection, owner=str(uuid4()), limit=AT_ONCE, lease_seconds=LEASE_SECONDS, now=now)
    if not notices:
        return Notifications()
    due = _Due(now, timedelta(hours=settings.alert_repeat_hours))
    errors = _send(targets, notices, due, longest_seconds)
    outcome = [_notified(notice, targets, due, errors) for notice in notices]
    with database.transaction() as connection:
        alerts.settle(connection, outcome)
    sent = sum(one.error is None for one in outcome)
    return Notifications(sent, len(outcome) - sent)


@dataclass(frozen=True, slots=True)
class _Due:
    """Which alerts an address has to get now, independent of other addresses."""

    now: datetime
    repeat: timedelta

    def concerns(self, channel: Channel, notice: Notice) -> bool:
        told_at = notice.reached.get(channel.key)
        if told_at is None:
            return True
        return notice.alert.ended_at is None and told_at + self.repeat <= self.now


def _send(targets: list[Channel], notices: list[Notice], due: _Due, longest_seconds: float) -> dict[str, str]:
    """Send each address its due alerts; returns the addresses that failed, and why."""
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


def _notified(notice: Notice, targets: list[Channel], due: _Due, errors: dict[str, str]) -> Notified:
    asked = [channel.key for channel in targets if due.concerns(channel, notice)]
    missing = [key for key in asked if key in errors]
    heard = {key: due.now for key in asked if key not in errors}
    # Addresses that are no longer configured are dropped.
    reached = {channel.key: notice.reached[channel.key] for channel in targets if channel.key in notice.reached} | heard
    if missing:
        again_at = due.now + TRY_AGAIN
    else:
        again_at = min(reached.values()) + due.repeat if notice.alert.ended_at is None else None
    return Notified(notice, reached, bool(heard), again_at, errors[missing[0]] if missing else None)


def message_of(due_alerts: Sequence[Alert]) -> Message:
    """One alert in full, several as a list of which the first lines are shown."""
    over = sum(alert.ended_at is not None for alert in due_alerts)
    if len(due_alerts) == 1:
        [alert] = due_alerts
        title = f"Over: {alert.title}" if over else alert.title
        return Message(f"[mustit] {title}", f"{alert.detail}\n{_since(alert)}", good_news=bool(over))
    parts = [f"{len(due_alerts) - over} alerts"] * (over < len(due_alerts)) + [f"{over} over"] * bool(over)
    lines = [_line(alert) for alert in due_alerts[:LINES]]
    if len(due_alerts) > LINES:
        lines.append(f"and {len(due_alerts) - LINES} more: `mustit alerts list`")
    return Message(f"[mustit] {', '.join(parts)}", "\n".join(lines), good_news=over == len(due_alerts))


def _line(alert: Alert) -> str:
    return f"- {'Over: ' if alert.ended_at is not None else ''}{alert.title}: {alert.detail} ({_since(alert)})"


def _since(alert: Alert) -> str:
    begun = alert.opened_at.astimezone(SEOUL).strftime("%m-%d %H:%M")
    if alert.ended_at is None:
        return f"since {begun} in Seoul"
    return f"from {begun} to {alert.ended_at.astimezone(SEOUL).strftime('%m-%d %H:%M')} in Seoul"
