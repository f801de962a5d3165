"""The locks that transactions take, in the order in which they take them, held against the order of ARCHITECTURE.md."""

import re
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from sqlalchemy import Connection, Engine, event

from mustit_pipeline.foundation.advisory_locks import Only, PerName
from mustit_pipeline_tests.architecture.test_rooms_own_their_tables import owners

ARCHITECTURE = Path(__file__).parents[2] / "ARCHITECTURE.md"
# Each transaction writes tallies into a slot of its own, so none ever waits for their rows.
TABLES = owners().keys() - {"tallies"}
_ADVISORY = re.compile(r"SELECT pg_advisory_xact_lock(?:_shared)?\(%\((\w+)\)s")
_WRITES = re.compile(r"(?<!FOR )(?<!KEY )(?<!DO )\bUPDATE (\w+)|\bDELETE FROM (\w+)|\bINSERT INTO (\w+)")
# What each key is of: those that are made of names are added as they are made, while transactions are watched.
_KINDS = {int(one): one.name for one in Only}
_CHOOSES = re.compile(r"\bFOR (?:NO KEY )?UPDATE(?: OF (\w+))?( SKIP LOCKED)?")
_ROWS_HELD = "SELECT count(*) FROM {} WHERE pg_current_xact_id_if_assigned()::xid IN (xmin, xmax)"

# Where a lock may come after a later one: a piece of the statement that takes it, and why no circle can close.
EXCEPTIONS = {
    "locked AS ( SELECT p.product_id, a.version FROM arrived a": """The relay settles its SENDING rows before it locks
        their products. Others never wait for a SENDING row: they skip it, or see that it is not for them.""",
}


def page_on_locks() -> str:
    """The section of ARCHITECTURE.md."""
    return ARCHITECTURE.read_text(encoding="utf-8").partition("\n## Locks\n")[2].partition("\n## ")[0]


def documented_order() -> list[str]:
    """The order of locks as the page states it, in its one block."""
    return re.findall(r"\w+", page_on_locks().split("```")[1])


@dataclass(frozen=True)
class Lock:
    """A table whose rows a statement locks, or an advisory lock by its name; a lock that skips never waits."""

    name: str
    key: int | None = None
    skips: bool = False


def locks_of(statement: str, values: Any) -> Iterator[Lock]:
    """What a statement locks, in the order in which it names it. New rows are no lock: no other sees them yet."""
    statement = " ".join(statement.split())
    if advisory := _ADVISORY.match(statement):
        yield _advisory(values[advisory[1]])
        return
    found: list[tuple[int, str, bool]] = []
    for write in _WRITES.finditer(statement):
        table = next(filter(None, write.groups()))
        if write[3] is None or "DO UPDATE" in _same_level_after(statement, write.end()):
            found.append((write.start(), table, False))
    for choice in _CHOOSES.finditer(statement):
        if re.search(r"\bDO $", statement[: choice.start()]) is None:
            before = _same_level_before(statement, choice.start())
            found.extend((choice.start(), table, bool(choice[2])) for table in _chosen_from(before, choice[1]))
    skipped = {table for _, table, skips in found if skips}
    for _, table, _ in sorted(found, key=lambda one: one[0]):
        if table in TABLES:
            yield Lock(table, skips=table in skipped)


def _advisory(key: int) -> Lock:
    return Lock(_KINDS.get(int(key), PerName.CATALOG.name), int(key))


def _chosen_from(query: str, alias: str | None) -> Iterable[str]:
    named = re.findall(r"\b(?:FROM|JOIN) (\w+)(?: (?:AS )?(?!JOIN|LEFT|CROSS|WHERE|ORDER|ON|FOR)(\w+))?", query)
    return [table for table, name in named if alias in (None, table, name)]


def _same_level_before(statement: str, end: int) -> str:
    """The query that ends there, without the queries inside it."""
    depth, kept = 0, []
    for sign in reversed(statement[:end]):
        depth += (sign == ")") - (sign == "(")
        if depth < 0:
            break
        if depth == 0:
            kept.append(sign)
    return "".join(reversed(kept))


def _same_level_after(statement: str, start: int) -> str:
    depth, kept = 0, []
    for sign in statement[start:]:
        depth += (sign == "(") - (sign == ")")
        if depth < 0:
            break
        if depth == 0:
            kept.append(sign)
    return "".join(kept)


@dataclass
class Watch:
    """Every transaction since it began to look: pairs of locks that one held together, and those out of order."""

    order: list[str]
    pairs: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    out_of_order: set[str] = field(default_factory=set[str])
    undocumented: set[str] = field(default_factory=set[str])
    excepted: set[str] = field(default_factory=set[str])
    _held: dict[int, list[Lock]] = field(default_factory=dict[int, list[Lock]])
    _doubtful: dict[int, list[tuple[Lock, Lock, int]]] = field(default_factory=dict[int, list[tuple[Lock, Lock, int]]])

    def begin(self, connection: Connection) -> None:
        self._held[_id(connection)] = []

    def before(self, connection: Connection, cursor: Any, statement: str, values: Any, *_: object) -> None:
        held = self._held.setdefault(_id(connection), [])
        doubtful: list[tuple[Lock, Lock, int]] = []
        for lock in locks_of(statement, values[0] if isinstance(values, list) else values):
            together = {lock.name, *(other.name for other in held)}
            # What a transaction locks alone needs no place in the order.
            unknown = together - set(self.order)
            if unknown:
                self.undocumented |= unknown if len(together) > 1 else set()
                held.append(lock)
                continue
            later = [other for other in held if self.order.index(other.name) > self.order.index(lock.name)]
            if later and not lock.skips and not (lock.key is not None and lock in held):
                doubtful.append((lock, later[-1], _rows_held(connection, lock)))
            self.pairs |= {(other.name, lock.name) for other in held if other.name != lock.name and other not in later}
            held.append(lock)
        self._doubtful[_id(connection)] = doubtful

    def after(self, connection: Connection, cursor: Any, statement: str, *_: object) -> None:
        """Whether what looked like a lock was one: rows that the transaction held already are no new ones."""
        for lock, later, rows in self._doubtful.pop(_id(connection), []):
            grown = lock.key is not None or _rows_held(connection, lock) > rows
            if grown or (cursor.rowcount > 0 and re.search(rf"\bDELETE FROM {lock.name}\b", statement)):
                self._judge(f"{lock.name} after {later.name}", " ".join(statement.split()))

    def _judge(self, what: str, statement: str) -> None:
        known = [piece for piece in EXCEPTIONS if piece in statement]
        self.excepted.update(known)
        if not known:
            self.out_of_order.add(f"{what}: {statement[:200]}")


def _id(connection: Connection) -> int:
    return id(connection.connection.driver_connection)


def _rows_held(connection: Connection, lock: Lock) -> int:
    driver = connection.connection.driver_connection
    assert driver is not None
    if lock.key is not None:
        return 0
    with driver.cursor() as cursor:
        return cursor.execute(_ROWS_HELD.format(lock.name)).fetchone()[0]


@contextmanager
def watched(order: list[str]) -> Generator[Watch]:
    """Look at all transactions of this process."""
    watch, make = Watch(order), PerName.of

    def of(kind: PerName, name: str) -> int:
        key = make(kind, name)
        _KINDS[key] = kind.name
        return key

    listeners = (
        ("begin", watch.begin),
        ("before_cursor_execute", watch.before),
        ("after_cursor_execute", watch.after),
    )
    for name, listener in listeners:
        event.listen(Engine, name, listener)
    try:
        with patch.object(PerName, "of", of):
            yield watch
    finally:
        for name, listener in listeners:
            event.remove(Engine, name, listener)
