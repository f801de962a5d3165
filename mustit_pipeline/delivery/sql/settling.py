"""The end of claims: rows and the products that they delivered, in one statement."""

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import Connection, text

from mustit_pipeline.catalog.sql.products import DELIVERED
from mustit_pipeline.outbox.sql.outbox_states import COMPLETED
from mustit_pipeline.outbox.sql.settlements import SETTLED, Settlement, values_of

_SETTLE = text(f"""
    WITH {SETTLED},
    arrived AS (SELECT seller_id, item_no, version FROM settled WHERE held AND status = {COMPLETED}),
    {DELIVERED}
    SELECT outbox_id FROM settled
""")


def settle(connection: Connection, settlements: Sequence[Settlement]) -> set[UUID]:
    """Write rows back; returns those whose claim still was ours."""
    if not settlements:
        return set()
    return set(connection.execute(_SETTLE, values_of(settlements)).scalars())
