"""The audit log: one entry with each change, in its transaction, and never a secret."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import ProgrammingError, SQLAlchemyError

from mustit_pipeline.access import api_keys, audit, users
from mustit_pipeline.access.audit import AuditedDatabase
from mustit_pipeline.access.sql import audit_log
from mustit_pipeline.access.sql.audit_log import Actor, AuditEntry, AuditFilter
from mustit_pipeline.access.sql.users import User
from mustit_pipeline.domain.access import ActorKind, KeyName, Password, Role, Scope, UserName
from mustit_pipeline.domain.errors import Conflict
from mustit_pipeline.domain.values import CrawlingInterval, SellerId
from mustit_pipeline.foundation.audited import Target
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.sellers import registry
from mustit_pipeline.sellers.sql import sellers
from mustit_pipeline_tests.integration.access.conftest import KIM
from mustit_pipeline_tests.integration.crawls import register

ADMIN = Actor(ActorKind.PERSON, "admin", "request-7", "192.0.2.1")
DMONT = SellerId("dmont")


def entries(database: Database, limit: int = 100, before_id: int | None = None, **wanted: Any) -> list[AuditEntry]:
    with database.reading() as connection:
        return audit_log.newest(connection, AuditFilter(**wanted), limit=limit, before_id=before_id).rows


def interval(connection: Connection) -> Mapping[str, Any]:
    seller, _ = sellers.get(connection, DMONT)
    return {"interval": str(seller.interval)}


def seen_of_kim(database: Database) -> Mapping[str, Any] | None:
    look = users.target(KIM).look
    assert look is not None
    with database.reading() as connection:
        return look(connection)


def test_a_use_case_of_another_room_leaves_its_entry_without_knowing_of_it(database: Database) -> None:
    audited = AuditedDatabase(database, ADMIN, "seller.add", Target("seller dmont", interval))
    registry.register(audited, DMONT, "D.MONT", CrawlingInterval.days(1), utc_now())
    audited = AuditedDatabase(database, ADMIN, "seller.interval", Target("seller dmont", interval))
    registry.change_interval(audited, DMONT, CrawlingInterval.hours(6), utc_now())

    changed, added = entries(database)
    assert (added.before, added.after) == (None, {"interval": "1d"})
    assert (changed.before, changed.after) == ({"interval": "1d"}, {"interval": "6h"})
    assert (changed.actor, changed.action, changed.target) == (ADMIN, "seller.interval", "seller dmont")


def test_what_changes_nothing_leaves_no_entry(database: Database) -> None:
    register(database, "dmont")
    audited = AuditedDatabase(database, ADMIN, "seller.interval", Target("seller dmont", interval))
    registry.change_interval(audited, DMONT, CrawlingInterval.days(1), utc_now())
    assert entries(database) == []


def test_a_change_that_is_refused_or_fails_leaves_no_entry(database: Database, kim: User) -> None:
    users.disable(database, KIM)
    audited = AuditedDatabase(database, ADMIN, "user.disable", users.target(KIM))
    with pytest.raises(Conflict):
        users.disable(audited, KIM)
    with pytest.raises(SQLAlchemyError), audited.transaction() as connection:
        connection.exec_driver_sql("UPDATE users SET role = 'viewer'; SELECT 1 / 0")
    assert entries(database) == []
    assert seen_of_kim(database) == {"role": "admin", "disabled": True}


def test_a_change_whose_entry_cannot_be_written_does_not_happen(database: Database, kim: User) -> None:
    unstorable = Actor(ActorKind.PERSON, "a\x00b")
    audited = AuditedDatabase(database, unstorable, "user.disable", users.target(KIM))
    with pytest.raises((SQLAlchemyError, ValueError)):
        users.disable(audited, KIM)
    assert seen_of_kim(database) == {"role": "admin", "disabled": False}


def test_an_action_without_a_state_leaves_one_entry_however_many_transactions_it_takes(database: Database) -> None:
    audited = AuditedDatabase(database, ADMIN, "outbox.retry", Target("outbox 7"))
    with pytest.raises(ZeroDivisionError), audited.transaction():
        _ = 1 / 0
    for _ in range(3):
        with audited.transaction() as connection:
            connection.exec_driver_sql("SELECT 1")
    [entry] = entries(database)
    assert (entry.action, entry.before, entry.after) == ("outbox.retry", None, None)


def test_two_changes_at_once_each_say_what_they_changed(database: Database, kim: User) -> None:
    """Each sees the user as the other left it, not as both found it."""

    def change(number: int) -> None:
        audited = AuditedDatabase(database, ADMIN, "user.role", users.target(KIM))
        users.change_role(audited, KIM, Role.VIEWER if number % 2 else Role.ADMIN)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(change, range(12)))

    steps = [(entry.before, entry.after) for entry in reversed(entries(database))]
    assert all(before != after for before, after in steps)
    assert [after for _, after in steps][:-1] == [before for before, _ in steps][1:]


def test_no_secret_is_in_an_entry_however_deep_it_lies(database: Database) -> None:
    state = {
        "name": "kim",
        "password": "hunter2",
        "apiKey": "hunter2",
        "inner": [{"client_secret": "hunter2", "accessToken": {"text": "hunter2"}, "at": utc_now()}],
    }
    with database.transaction() as connection:
        audit.record(connection, ADMIN, "x", "y", before=state, after={"passwordHash": "hunter2"})

    [entry] = entries(database)
    assert "hunter2" not in str(entry)
    assert entry.before is not None
    assert (entry.before["name"], entry.before["password"]) == ("kim", "***")


def test_passwords_and_keys_leave_entries_and_nothing_of_themselves(database: Database, kim: User) -> None:
    audited = AuditedDatabase(database, ADMIN, "user.password", Target("user kim"))
    users.change_password(audited, KIM, Password("another horse", KIM))
    audited = AuditedDatabase(database, ADMIN, "apikey.create", api_keys.target("s"))
    made = api_keys.create(audited, KeyName("s"), [Scope.TRIGGER], timedelta(days=1))
    audited = AuditedDatabase(database, ADMIN, "apikey.revoke", api_keys.target("s"))
    api_keys.revoke(audited, made.key.id)

    revoked, created, changed = entries(database)
    assert changed.action == "user.password"
    assert created.after is not None
    assert [key["id"] for key in created.after["active"]] == [made.key.id]
    assert (revoked.before, revoked.after) == (created.after, {"active": []})
    with database.reading() as connection:
        stored = str(connection.execute(text("SELECT a::text FROM audit_log a")).scalars().all())
    for secret in ("another horse", made.text, made.text.rpartition("_")[2], "argon2"):
        assert secret not in stored


def test_the_log_is_read_newest_first_page_by_page_and_by_who_what_and_when(database: Database) -> None:
    with database.transaction() as connection:
        for number in range(10):
            actor = Actor(ActorKind.CLI, "root" if number % 2 else "ops")
            audit.record(
                connection, actor, f"act {number % 3}", f"thing {number % 5}", before=None, after={"n": number}
            )

    def numbers(found: list[AuditEntry]) -> list[int]:
        return [entry.after["n"] for entry in found if entry.after is not None]

    first = entries(database, limit=4)
    assert numbers(first) == [9, 8, 7, 6]
    assert numbers(entries(database, limit=4, before_id=first[-1].id)) == [5, 4, 3, 2]
    assert numbers(entries(database, actor="root")) == [9, 7, 5, 3, 1]
    assert numbers(entries(database, action="act 1")) == [7, 4, 1]
    assert numbers(entries(database, target="thing 2")) == [7, 2]
    assert numbers(entries(database, actor="root", action="act 0")) == [9, 3]
    assert numbers(entries(database, actor="ops", action="act 2", target="thing 2")) == [2]
    assert numbers(entries(database, actor="root", before_id=first[0].id)) == [7, 5, 3, 1]
    assert numbers(entries(database, since=first[1].at)) == [9, 8]
    assert entries(database, since=utc_now() + timedelta(days=1)) == []
    assert entries(database, before_id=10**9) == []


def test_an_entry_is_never_changed(database: Database) -> None:
    with database.transaction() as connection:
        audit.record(connection, ADMIN, "x", "y", before=None, after=None)
    with pytest.raises(ProgrammingError, match="never changed"), database.transaction() as connection:
        connection.exec_driver_sql("UPDATE audit_log SET actor = 'another'")


def test_a_user_is_added_once_and_disabled_once(database: Database, kim: User) -> None:
    with pytest.raises(Conflict, match="exists already"):
        users.add(database, UserName("KIM"), Role.VIEWER, None)
    with pytest.raises(Conflict, match="enabled already"):
        users.enable(database, KIM)
    users.disable(database, KIM)
    with pytest.raises(Conflict, match="disabled already"):
        users.disable(database, KIM)
