"""The audit log: rows are added and read, newest first, and go by their age."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, insert, text

from mustit_pipeline.access.sql.tables import audit_log
from mustit_pipeline.domain.access import ActorKind
from mustit_pipeline.foundation import advisory_locks
from mustit_pipeline.foundation.advisory_locks import PerName
from mustit_pipeline.foundation.aging import Aged
from mustit_pipeline.foundation.paging import Page, page

BY_TIME = "id > 0"
AGED = Aged("audit_log", ("at",), stated=BY_TIME)


@dataclass(frozen=True, slots=True)
class Actor:
    """Who changes something, and with which request."""

    kind: ActorKind
    name: str
    request_id: str | None = None
    address: str | None = None


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One change: who, when, what, before, after."""

    id: int
    at: datetime
    actor: Actor
    action: str
    target: str
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which entries are asked for."""

    actor: str | None = None
    action: str | None = None
    target: str | None = None
    since: datetime | None = None


_FOLLOWING = """
    AND at >= coalesce(CAST(:since AS timestamptz), '-infinity')
    AND (at, id) < (CASE WHEN CAST(:before_id AS bigint) IS NULL THEN 'infinity'
                         ELSE (SELECT c.at FROM audit_log c WHERE c.id = CAST(:before_id AS bigint)) END,
                    coalesce(CAST(:before_id AS bigint), 0))
    ORDER BY at DESC, id DESC LIMIT :limit
"""
# One statement for each of the filters that has an index of its own; the others only narrow what it finds.
_LIST = {
    "target": text(f"""SELECT * FROM audit_log WHERE target = :target
                       AND (CAST(:actor AS text) IS NULL OR actor = :actor)
                       AND (CAST(:action AS text) IS NULL OR action = :action) {_FOLLOWING}"""),
    "actor": text(f"""SELECT * FROM audit_log WHERE actor = :actor
                      AND (CAST(:action AS text) IS NULL OR action = :action) {_FOLLOWING}"""),
    "action": text(f"SELECT * FROM audit_log WHERE action = :action {_FOLLOWING}"),
    "": text(f"SELECT * FROM audit_log WHERE {BY_TIME} {_FOLLOWING}"),
}


def lock(connection: Connection, target: str) -> None:
    """Let audited changes of one thing happen one after another until the transaction ends."""
    advisory_locks.lock(connection, PerName.AUDIT.of(target))


def add(
    connection: Connection,
    actor: Actor,
    action: str,
    target: str,
    *,
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any] | None,
) -> None:
    """Write one entry, with the change that it is about."""
    connection.execute(
        insert(audit_log).values(
            actor_kind=actor.kind.value,
            actor=actor.name,
            action=action,
            target=target,
            before=before,
            after=after,
            request_id=actor.request_id,
            address=actor.address,
        )
    )


def newest(
    connection: Connection, wanted: AuditFilter, *, limit: int, before_id: int | None = None
) -> Page[AuditEntry]:
    """Entries from the newest on; `before_id`, the id of the last one seen, asks for those that follow."""
    given = {"target": wanted.target, "actor": wanted.actor, "action": wanted.action}
    first = next((name for name, value in given.items() if value is not None), "")
    needed = {name: value for name, value in given.items() if f":{name}" in _LIST[first].text}
    values = {**needed, "since": wanted.since, "before_id": before_id, "limit": limit + 1}
    rows = connection.execute(_LIST[first], values)
    return page(
        (
            AuditEntry(
                id=row.id,
                at=row.at,
                actor=Actor(ActorKind(row.actor_kind), row.actor, row.request_id, row.address),
                action=row.action,
                target=row.target,
                before=row.before,
                after=row.after,
            )
            for row in rows
        ),
        limit,
    )
