"""Stored bodies as text, for tests that change what they say by SQL."""

from sqlalchemy import Connection, text

from mustit_pipeline.store.packing import unpacked


def unpack_all(connection: Connection) -> None:
    """From here on every stored body is text, as it was fetched."""
    rows = connection.execute(text("SELECT raw_id, packed FROM product_raw_data WHERE packed IS NOT NULL")).all()
    if rows:
        connection.execute(
            text("UPDATE product_raw_data SET body = :body, packed = NULL WHERE raw_id = :raw_id"),
            [{"raw_id": row.raw_id, "body": unpacked(None, row.packed)} for row in rows],
        )
