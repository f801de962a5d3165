"""The end of claims: rows and the products that they delivered, in one statement."""

from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct
from sqlalchemy import Connection, text

from mustit_pipeline.catalog.sql.products import DELIVERED
from mustit_pipeline.outbox.sql.outbox import SETTLED, Settlement, values_of
from mustit_pipeline.outbox.sql.outbox_states import COMPLETED, FIRST_CHANGED_AT


class Settled(Struct, frozen=True):
    """A row whose claim still was ours: what it went out as, and if it has ended, the seconds from change to end."""

    event_type: str
    seconds: float | None


# A first version announces itself alone.
_SETTLE = text(f"""
    WITH {SETTLED},
    arrived AS (SELECT seller_id, item_no, version FROM settled WHERE held AND status = {COMPLETED}),
    {DELIVERED}
    SELECT o.outbox_id, o.event_type,
           CASE WHEN o.status = {COMPLETED} THEN CAST(extract(epoch FROM
               now() - CASE WHEN o.version = 1 THEN o.created_at ELSE {FIRST_CHANGED_AT} END) AS float8) END AS seconds
    FROM settled o
""")


def settle(connection: Connection, settlements: Sequence[Settlement]) -> dict[UUID, Settled]:
    """Write rows back; returns those whose claim still was ours."""
    if not settlements:
        return {}
    rows = connection.execute(_SETTLE, values_of(settlements)).all()
    return {outbox_id: Settled(event_type, seconds) for outbox_id, event_type, seconds in rows}
