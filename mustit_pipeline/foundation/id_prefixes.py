"""One row by the first digits of its id."""

from typing import Any

from sqlalchemy import Connection, Row, text

from mustit_pipeline.domain.errors import NotFound
from mustit_pipeline.domain.filters import IdPrefix


def find_one(
    connection: Connection,
    table: str,
    column: str,
    wanted: IdPrefix,
    *,
    code: str,
    korean: str,
    thing: str,
    listing: str,
) -> Row[Any]:
    """The one row whose id has this prefix; no match and several matches are both refused."""
    query = text(f"SELECT * FROM {table} WHERE {column} BETWEEN :first AND :last ORDER BY {column} LIMIT 2")
    rows = connection.execute(query, {"first": wanted.first, "last": wanted.last}).all()
    if len(rows) == 1:
        return rows[0]
    found = f"More than one {thing} begins" if rows else f"There is no {thing} that begins"
    raise NotFound(
        code, korean=f"{korean} 찾을 수 없습니다: {wanted}", english=f"{found} with {wanted}: see `{listing} --json`"
    )
