"""Notifications of alerts: once each, again while they go on, when they are over, and never lost on the way."""

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from mustit_pipeline.foundation.database import Database
from mustit_pipeline.monitoring.alerting import CHECK_FAILED, FAILED_EVENTS, Alerted, observe, record
from mustit_pipeline.monitoring.notifications import Notifications, notify
from mustit_pipeline.monitoring.sql import alerts
from mustit_pipeline.monitoring.sql.alerts import Condition, Outcome
from mustit_pipeline.settings import Settings
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration.monitoring.inbox import TOKEN, Inbox

T0 = datetime(2026, 11, 16, 3, 0, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
BROKEN = Condition("tick x", "TICK_FAILED", "The sensor x fails", "Look at it.")


def outcome(subject: str, at: datetime, *, failed: bool) -> Outcome:
    failure = Condition(subject, CHECK_FAILED, f"{subject} fails", "Mend it.") if failed else None
    return Outcome(subject, CHECK_FAILED, at, failure)


def stored(database: Database, columns: str = "*") -> list[dict[str, Any]]:
    with database.reading() as connection:
        rows = connection.execute(text(f"SELECT {columns} FROM alerts ORDER BY subject, opened_at"))
        return [dict(row) for row in rows.mappings()]


@pytest.fixture
def settings(make_settings: MakeSettings, inbox: Inbox) -> Settings:
    return make_settings(alert_urls=inbox.url, alert_repeat_hours=6, alert_calm_seconds=0)


def test_a_condition_is_told_once_and_its_end_once(database: Database, settings: Settings, inbox: Inbox) -> None:
    for at in (T0, T0 + MINUTE, T0 + 2 * MINUTE):
        observe(database, settings, at, others=[BROKEN])
        notify(database, settings, at)
    assert inbox.titles == ["[mustit] The sensor x fails"]
    assert "since 11-16 12:00 in Seoul" in inbox.messages[0]["message"]

    for at in (T0 + 3 * MINUTE, T0 + 4 * MINUTE):
        observe(database, settings, at)
        notify(database, settings, at)
    assert inbox.titles[1:] == ["[mustit] Over: The sensor x fails"]
    assert "from 11-16 12:00 to 11-16 12:03 in Seoul" in inbox.messages[1]["message"]
    assert [message["type"] for message in inbox.messages] == ["warning", "success"]


def test_what_is_seen_twice_at_once_is_one_alert(database: Database, settings: Settings) -> None:
    assert observe(database, settings, T0, others=[BROKEN, BROKEN]) == Alerted(opened=1)
    assert observe(database, settings, T0 + MINUTE, others=[BROKEN, BROKEN]) == Alerted()


def test_an_alert_that_goes_on_is_told_again_only_after_the_set_hours(
    database: Database, settings: Settings, inbox: Inbox
) -> None:
    for minutes in range(0, 13 * 60, 30):
        at = T0 + minutes * MINUTE
        observe(database, settings, at, others=[BROKEN])
        notify(database, settings, at)

    assert len(inbox.messages) == 3
    assert [row["notices"] for row in stored(database)] == [3]


def test_what_flickers_stays_one_alert(database: Database, make_settings: MakeSettings, inbox: Inbox) -> None:
    settings = make_settings(alert_urls=inbox.url, alert_calm_seconds=300)
    for minute in range(10):
        observe(database, settings, T0 + minute * MINUTE, others=[BROKEN] if minute % 2 == 0 else [])
        notify(database, settings, T0 + minute * MINUTE)
    assert len(inbox.messages) == 1

    observe(database, settings, T0 + 13 * MINUTE)
    assert [row["ended_at"] for row in stored(database)] == [T0 + 13 * MINUTE]


def test_a_failing_receiver_loses_nothing_and_the_next_tick_tries_again(
    database: Database, settings: Settings, inbox: Inbox
) -> None:
    inbox.refusing = True
    observe(database, settings, T0, others=[BROKEN])
    assert notify(database, settings, T0) == Notifications(sent=0, unsent=1)
    [row] = stored(database)
    assert (row["notices"], row["lease_owner"]) == (0, None)
    assert row["last_error"] == "address 1 (json): the service did not take the message"

    inbox.refusing = False
    assert notify(database, settings, T0 + MINUTE) == Notifications(sent=1, unsent=0)
    assert (inbox.titles, stored(database)[0]["last_error"]) == (["[mustit] The sensor x fails"], None)


def test_an_address_that_a_tick_has_no_time_left_for_is_told_by_the_next(
    database: Database, settings: Settings, inbox: Inbox
) -> None:
    observe(database, settings, T0, others=[BROKEN])
    assert notify(database, settings, T0, longest_seconds=-1) == Notifications(sent=0, unsent=1)
    assert inbox.messages == []

    assert notify(database, settings, T0 + MINUTE) == Notifications(sent=1, unsent=0)
    assert inbox.titles == ["[mustit] The sensor x fails"]


def test_what_began_and_ended_while_no_address_could_be_told_is_told_afterwards(
    database: Database, settings: Settings, inbox: Inbox
) -> None:
    inbox.refusing = True
    observe(database, settings, T0, others=[BROKEN])
    notify(database, settings, T0)
    observe(database, settings, T0 + MINUTE)
    notify(database, settings, T0 + MINUTE)

    inbox.refusing = False
    notify(database, settings, T0 + 2 * MINUTE)
    notify(database, settings, T0 + 3 * MINUTE)
    assert inbox.titles == ["[mustit] Over: The sensor x fails"]


def test_one_receiver_that_fails_makes_the_others_hear_nothing_twice(
    database: Database, make_settings: MakeSettings, inbox: Inbox, other_inbox: Inbox
) -> None:
    settings = make_settings(alert_urls=f"{inbox.url}, {other_inbox.url}")
    other_inbox.refusing = True
    observe(database, settings, T0, others=[BROKEN])
    notify(database, settings, T0)
    notify(database, settings, T0 + MINUTE)
    other_inbox.refusing = False
    assert notify(database, settings, T0 + 2 * MINUTE).sent == 1

    assert (len(inbox.messages), len(other_inbox.messages)) == (1, 1)


def test_an_address_that_never_answers_keeps_no_other_from_being_told_again(
    database: Database, make_settings: MakeSettings, inbox: Inbox, other_inbox: Inbox
) -> None:
    settings = make_settings(alert_urls=f"{other_inbox.url}, {inbox.url}", alert_repeat_hours=6, alert_calm_seconds=0)
    other_inbox.refusing = True
    for minutes in range(0, 13 * 60, 30):
        at = T0 + minutes * MINUTE
        observe(database, settings, at, others=[BROKEN])
        notify(database, settings, at)
    assert len(inbox.messages) == 3
    assert [row["notices"] for row in stored(database)] == [3]

    other_inbox.refusing = False
    notify(database, settings, T0 + 13 * HOUR)
    assert (len(inbox.messages), len(other_inbox.messages)) == (3, 1)
    observe(database, settings, T0 + 14 * HOUR)
    notify(database, settings, T0 + 14 * HOUR)
    assert inbox.titles[3:] == other_inbox.titles[1:] == ["[mustit] Over: The sensor x fails"]
    assert [row["notice_at"] for row in stored(database)] == [None]


def test_notices_that_cannot_be_delivered_do_not_stand_before_new_ones(
    database: Database,
    make_settings: MakeSettings,
    inbox: Inbox,
    other_inbox: Inbox,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mustit_pipeline.monitoring.notifications.AT_ONCE", 3)
    settings = make_settings(alert_urls=f"{other_inbox.url}, {inbox.url}", alert_calm_seconds=0)
    other_inbox.refusing = True
    old = [Condition(f"tick {n}", "TICK_FAILED", f"The sensor {n} fails", "Look.") for n in range(3)]
    observe(database, settings, T0, others=old)
    notify(database, settings, T0)

    observe(database, settings, T0 + MINUTE, others=[*old, BROKEN])
    notify(database, settings, T0 + MINUTE)
    assert inbox.titles == ["[mustit] 3 alerts", "[mustit] The sensor x fails"]

    observe(database, settings, T0 + 2 * MINUTE, others=old)
    notify(database, settings, T0 + 2 * MINUTE)
    assert inbox.titles[2:] == ["[mustit] Over: The sensor x fails"]


def test_two_senders_at_once_send_once(database: Database, settings: Settings, inbox: Inbox) -> None:
    observe(database, settings, T0, others=[BROKEN])
    inbox.go_on.clear()
    first = threading.Thread(target=notify, args=(database, settings, T0))
    first.start()
    assert inbox.arrived.wait(10)

    assert notify(database, settings, T0) == Notifications()
    inbox.go_on.set()
    first.join(10)
    assert len(inbox.messages) == 1
    assert stored(database)[0]["notices"] == 1


def test_a_sender_that_dies_holds_a_notice_only_until_its_lease_ends(
    database: Database, settings: Settings, inbox: Inbox
) -> None:
    observe(database, settings, T0, others=[BROKEN])
    with database.transaction() as connection:
        assert alerts.claim(connection, owner="dead", limit=10, lease_seconds=60, now=T0)
    assert notify(database, settings, T0) == Notifications()

    with database.transaction() as connection:
        connection.execute(text("UPDATE alerts SET lease_expires_at = now() - interval '1 second'"))
    assert notify(database, settings, T0).sent == 1


def test_an_alert_that_ends_while_it_is_being_told_is_told_to_be_over(
    database: Database, settings: Settings, inbox: Inbox
) -> None:
    """The late sender's result must not hide that the end has not been sent."""
    observe(database, settings, T0, others=[BROKEN])
    inbox.go_on.clear()
    late = threading.Thread(target=notify, args=(database, settings, T0))
    late.start()
    assert inbox.arrived.wait(10)
    observe(database, settings, T0 + MINUTE)
    inbox.go_on.set()
    late.join(10)

    notify(database, settings, T0 + 2 * MINUTE)
    assert inbox.titles == ["[mustit] The sensor x fails", "[mustit] Over: The sensor x fails"]


def test_many_alerts_at_once_are_one_message_that_says_how_many(
    database: Database, settings: Settings, inbox: Inbox
) -> None:
    many = [Condition(f"tick {n:03}", "TICK_FAILED", f"The sensor {n:03} fails", "Look.") for n in range(50)]
    observe(database, settings, T0, others=many)
    assert notify(database, settings, T0).sent == 50

    [message] = inbox.messages
    assert message["title"] == "[mustit] 50 alerts"
    assert message["message"].count("\n- ") == 19
    assert "and 30 more: `mustit alerts list`" in message["message"]


def test_without_an_address_alerts_are_kept_and_an_address_set_later_hears_of_the_open_ones_only(
    database: Database, make_settings: MakeSettings, settings: Settings, inbox: Inbox
) -> None:
    silent = make_settings(alert_calm_seconds=0)
    over = Condition("tick y", "TICK_FAILED", "The sensor y fails", "Look at it.")
    observe(database, silent, T0, others=[BROKEN, over])
    observe(database, silent, T0 + MINUTE, others=[BROKEN])
    assert notify(database, silent, T0 + MINUTE) == Notifications()
    with database.reading() as connection:
        kept = alerts.newest(connection, everything=True, limit=10).rows
    assert {(one.subject, one.ended_at is None) for one in kept} == {("tick x", True), ("tick y", False)}

    notify(database, settings, T0 + HOUR)
    assert inbox.titles == ["[mustit] The sensor x fails"]


def test_the_newest_outcome_decides_and_looking_twice_changes_nothing(
    database: Database, settings: Settings, inbox: Inbox
) -> None:
    looked = [
        outcome("check a", T0, failed=True),
        outcome("check a", T0 + MINUTE, failed=False),
        outcome("check b", T0, failed=False),
        outcome("check b", T0 + MINUTE, failed=True),
        outcome("check c", T0, failed=False),
    ]
    for late in (2, 3, 4):
        record(database, looked, T0 + late * MINUTE)
        notify(database, settings, T0 + late * MINUTE)

    assert [(row["subject"], row["ended_at"]) for row in stored(database)] == [
        ("check a", T0 + MINUTE),
        ("check b", None),
    ]
    [message] = inbox.messages
    assert message["title"] == "[mustit] 1 alerts, 1 over"

    record(database, [outcome("check a", T0 + HOUR, failed=True)], T0 + HOUR)
    assert [row["ended_at"] is None for row in stored(database)] == [False, True, True]


def test_states_and_outcomes_do_not_end_each_others_alerts(database: Database, settings: Settings) -> None:
    record(database, [outcome("check a", T0, failed=True)], T0)
    observe(database, settings, T0 + HOUR)

    assert [row["ended_at"] for row in stored(database)] == [None]


def test_no_secret_of_an_address_is_stored_or_shown(
    database: Database, make_settings: MakeSettings, inbox: Inbox, capfd: pytest.CaptureFixture[str]
) -> None:
    unknown = f"nosuchservice://user:{TOKEN}@host/{TOKEN}"
    settings = make_settings(alert_urls=f"{inbox.url} {unknown} json://127.0.0.1:9/{TOKEN}")
    inbox.refusing = True
    observe(database, settings, T0, others=[BROKEN])
    notify(database, settings, T0)

    shown = capfd.readouterr()
    seen = f"{shown.out}{shown.err}{stored(database)}{settings!r}{settings}"
    assert TOKEN not in seen
    assert "address 1 (json)" in seen


def test_failed_events_are_an_alert_until_they_are_gone(database: Database, settings: Settings) -> None:
    with database.transaction() as connection:
        connection.execute(
            text("""
                INSERT INTO product_outbox (seller_id, item_no, version, event_type, idempotency_key, status)
                SELECT 'dmont', n, 1, 'PRODUCT_CREATED', 'k' || n, 'FAILED' FROM generate_series(1, 3) n
            """)
        )
    observe(database, settings, T0)
    [row] = stored(database)
    assert (row["kind"], row["title"]) == (FAILED_EVENTS, "3 product events are FAILED")

    with database.transaction() as connection:
        connection.execute(text("UPDATE product_outbox SET status = 'WAITING'"))
    observe(database, settings, T0 + MINUTE)
    assert stored(database)[0]["ended_at"] == T0 + MINUTE
