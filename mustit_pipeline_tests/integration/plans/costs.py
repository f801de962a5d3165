"""What statements cost: the rows and pages that they touch, as PostgreSQL counts them while it runs them."""

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.adapt import PyFormat, Transformer
from sqlalchemy import Connection, event

_EXPLAIN = "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, SUMMARY OFF, FORMAT JSON)"
_PLANNED = re.compile(r"[\s(]*(SELECT|WITH|UPDATE|DELETE|INSERT)\b", re.IGNORECASE)
_PARAMETER = re.compile(r"%\((\w+)\)s")
# The tables that grow.
BIG = (
    "crawler_tasks",
    "crawling_schedule_executions",
    "products",
    "product_change_sets",
    "product_outbox",
    "product_raw_data",
    "recrawl_products",
    "recrawl_sellers",
    "scheduler_outbox",
    "agent_bookings",
    "crawling_slices",
    "truth_samples",
    "alerts",
    "trigger_messages",
    "audit_log",
    "login_failures",
    "revoked_tokens",
    "login_links",
    "tallies",
)
_OF_BIG = re.compile(rf"\b(FROM|JOIN|UPDATE|INTO)\s+({'|'.join(BIG)})\b")


@dataclass(frozen=True)
class Cost:
    """Rows that the steps of a plan handled, those they dropped included, and pages of tables and indexes read."""

    rows: float
    pages: int


@dataclass(frozen=True)
class Sent:
    """A statement with its values, as it went to PostgreSQL."""

    statement: str
    values: Any

    @property
    def shape(self) -> str:
        return shape(self.statement)


def shape(statement: str) -> str:
    """A statement without its line breaks, the length of its lists and the names of its values."""
    named = re.sub(r"\[1:\d+\]", "[1:n]", _PARAMETER.sub("%s", statement))
    return re.sub(r"\((%s(::\w+)?, )*%s(::\w+)?\)", "(%s)", " ".join(named.split()))


def has_a_plan(statement: str) -> bool:
    """Whether it reads a table that grows; rows that are only put in have nothing to choose."""
    return bool(
        _PLANNED.match(statement)
        and _OF_BIG.search(statement)
        and not re.match(r"\s*INSERT INTO \w+ \([^)]*\) VALUES", statement)
    )


@contextmanager
def recorded(target: Any) -> Generator[list[Sent]]:
    """Everything that goes through a connection, or through any engine."""
    sent: list[Sent] = []

    def remember(_: object, __: object, statement: str, values: Any, *___: object) -> None:
        sent.append(Sent(statement, values[0] if isinstance(values, list) else values))

    event.listen(target, "before_cursor_execute", remember)
    try:
        yield sent
    finally:
        event.remove(target, "before_cursor_execute", remember)


def statements_of(connection: Connection, act: Callable[[Connection], object]) -> list[Sent]:
    """What an act sends about the tables that grow; nothing of it remains."""
    with recorded(connection) as sent:
        undone = connection.begin_nested()
        act(connection)
        undone.rollback()
    return [one for one in sent if has_a_plan(one.statement)]


def cost(connection: Connection, sent: Sent, *, generic: bool) -> Cost:
    """Run a statement and count; with the plan that knows its values, or the one that serves all values."""
    if generic:
        plan = _explain_prepared(connection, sent)
    else:
        plan = connection.exec_driver_sql(f"{_EXPLAIN} {sent.statement}", sent.values).scalar_one()[0]["Plan"]
    return Cost(_rows(plan), plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def _explain_prepared(connection: Connection, sent: Sent) -> dict[str, Any]:
    driver = connection.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    names = list(dict.fromkeys(_PARAMETER.findall(sent.statement)))
    values = [sent.values[name] for name in names]
    transformer = Transformer(driver)
    transformer.dump_sequence(values, [PyFormat.AUTO] * len(values))
    with psycopg.ClientCursor(driver) as cursor:
        types = [
            cursor.execute("SELECT format_type(%s, NULL)", [oid or 705]).fetchone() for oid in transformer.types or ()
        ]
        declared = f"({', '.join(row[0] for row in types if row)})" if names else ""
        numbered = _PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", sent.statement).replace("%%", "%")
        cursor.execute(f"PREPARE planned {declared} AS {numbered}".encode())
        given = f"({', '.join(['%s'] * len(names))})" if names else ""
        try:
            cursor.execute(f"{_EXPLAIN} EXECUTE planned {given}".encode(), values or None)
            found = cursor.fetchone()
        finally:
            if driver.info.transaction_status != psycopg.pq.TransactionStatus.INERROR:
                cursor.execute("DEALLOCATE planned")
    assert found is not None
    return found[0][0]["Plan"]


def _rows(plan: dict[str, Any]) -> float:
    dropped = sum(value for name, value in plan.items() if name.startswith("Rows Removed"))
    here = (plan["Actual Rows"] + dropped) * plan["Actual Loops"]
    return here + sum(_rows(child) for child in plan.get("Plans", []))
