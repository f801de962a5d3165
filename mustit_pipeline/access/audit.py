"""Changes that are written down: who made them and what they changed, in the transaction that makes them."""

import json
import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

from sqlalchemy import Connection

from mustit_pipeline.access.sql import audit_log
from mustit_pipeline.access.sql.audit_log import Actor
from mustit_pipeline.domain.errors import NotFound
from mustit_pipeline.foundation.audited import State, Target
from mustit_pipeline.foundation.database import Database

KEPT_DAYS = 365
REDACTED = "***"
_SECRET = re.compile(r"passw|secret|token|hash|credential|authorization|cookie|api_?key", re.IGNORECASE)


class AuditedDatabase(Database):
    """A database whose transactions leave one entry in the audit log where they change its target.

    A use case that is given it opens its transactions as always. The target's `look` reads it before and after; what is
    not there is None, and NotFound says the same. Without a `look` the first transaction that commits is the entry.
    """

    def __init__(self, database: Database, actor: Actor, action: str, target: Target) -> None:
        super().__init__(database.engine)
        self._database = database
        self._actor, self._action, self._target = actor, action, target
        self._recorded = False

    @contextmanager
    def transaction(self) -> Generator[Connection]:
        """A transaction whose change and entry are committed together, or neither."""
        with self._database.transaction() as connection:
            # First of all: two audited changes of one thing would each see it as it was before the other.
            audit_log.lock(connection, self._target.name)
            before = self._state(connection)
            yield connection
            after = self._state(connection)
            due = not self._recorded if self._target.look is None else before != after
            if due:
                record(connection, self._actor, self._action, self._target.name, before=before, after=after)
        self._recorded = self._recorded or due

    def _state(self, connection: Connection) -> State | None:
        if self._target.look is None:
            return None
        try:
            return self._target.look(connection)
        except NotFound:
            return None


def record(
    connection: Connection, actor: Actor, action: str, target: str, *, before: State | None, after: State | None
) -> None:
    """Write one entry inside the caller's transaction; values of keys that name a secret are left out."""
    audit_log.add(connection, actor, action, target, before=_shown(before), after=_shown(after))


def _shown(state: State | None) -> State | None:
    """A state as JSON has it, without secrets."""
    return None if state is None else _redacted(json.loads(json.dumps(state, default=str)))


def _redacted(value: Any) -> Any:
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {name: REDACTED if _SECRET.search(name) else _redacted(inner) for name, inner in fields.items()}
    if isinstance(value, list):
        return [_redacted(inner) for inner in cast("list[Any]", value)]
    return value
