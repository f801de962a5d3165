"""Lists as arrays: PostgreSQL gets what Python holds, whatever the list is made of."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from mustit_pipeline.domain.states import TaskType
from mustit_pipeline.foundation.database import Database

MOMENT = datetime(2026, 11, 18, 1, 2, 3, 456789, tzinfo=UTC)
ID = UUID("0192f0c0-0000-7000-8000-000000000001")


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("text[]", ["a", "", "한글", '"{},\\', "x" * 10_000]),
        ("text[]", [None, "a", None]),
        ("text[]", [TaskType.MINISHOP, None]),
        ("bigint[]", [1, -1, 0, 2**63 - 1, -(2**63)]),
        ("bigint[]", [None, 7]),
        ("smallint[]", [1, 2]),
        ("int[]", [2**31 - 1, None]),
        ("numeric[]", [2**63, 1]),
        ("uuid[]", [ID, ID]),
        ("uuid[]", [ID, None]),
        ("timestamptz[]", [MOMENT, None]),
        ("float8[]", [0.5, None]),
        ("boolean[]", [True, None, False]),
        ("bytea[]", [b"\x00a", b""]),
        ("int[]", [[1, 2], [3, 4]]),
        ("text[]", [None, None]),
        ("text[]", []),
    ],
)
def test_a_list_arrives_as_it_is(database: Database, kind: str, values: list[Any]) -> None:
    with database.reading() as connection:
        found = connection.execute(text(f"SELECT CAST(:values AS {kind})"), {"values": values}).scalar_one()
    assert found == values


def test_a_statement_is_planned_once_for_small_and_large_numbers(database: Database) -> None:
    query = text("SELECT count(*) FROM unnest(CAST(:values AS bigint[]))")
    with database.reading() as connection:
        for values in ([1], [40_000], [5_000_000_000], [1, 2], [60_000]) * 3:
            connection.execute(query, {"values": values})
        plans = connection.execute(text("SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%unnest%'"))
        assert plans.scalar_one() == 1
