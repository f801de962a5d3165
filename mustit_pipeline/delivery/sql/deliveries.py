"""What the relay did for each seller, beside what it sent."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, text

from mustit_pipeline.domain.states import OutboxStatus
from mustit_pipeline.foundation.tables import BY_TIME
from mustit_pipeline.outbox.sql.outbox_states import COMPLETED, FIRST_CHANGED_AT, TOLD_VERSIONS, UNSENT
from mustit_pipeline.tallies.sql.tallies import Labels


@dataclass(frozen=True, slots=True)
class SellerDelivery:
    """Older versions that those sent stand for, and rows that are FAILED or on their way now."""

    superseded: int
    failed: int
    waiting: int


_DELIVERIES = text(f"""
    WITH sent AS (
        SELECT o.seller_id, sum({TOLD_VERSIONS} - 1) AS superseded FROM product_outbox o
        WHERE o.status = {COMPLETED} AND o.superseded_by IS NULL AND o.completed_at >= :since
        GROUP BY o.seller_id
    ), unsent AS (
        SELECT seller_id, count(*) FILTER (WHERE status IN ({UNSENT})) AS waiting,
               count(*) FILTER (WHERE status = '{OutboxStatus.FAILED.value}') AS failed
        FROM product_outbox WHERE status IN ({UNSENT}, '{OutboxStatus.FAILED.value}') AND {BY_TIME}
        GROUP BY seller_id
    )
    SELECT seller_id, coalesce(superseded, 0) AS superseded, coalesce(failed, 0) AS failed,
           coalesce(waiting, 0) AS waiting
    FROM unnest(CAST(:sellers AS text[])) AS wanted(seller_id)
    LEFT JOIN sent USING (seller_id) LEFT JOIN unsent USING (seller_id)
""")


# A first version announces itself alone.
_DELAYS = text(f"""
    SELECT o.event_type,
           extract(epoch FROM o.completed_at - CASE WHEN o.version = 1 THEN o.created_at ELSE {FIRST_CHANGED_AT} END)
               AS seconds
    FROM product_outbox o WHERE o.outbox_id = ANY(CAST(:ids AS uuid[]))
""")


def delays(connection: Connection, outbox_ids: Sequence[UUID]) -> dict[Labels, list[float]]:
    """Seconds from the detection of a change to its delivery, of delivered rows by the type of their event."""
    found: dict[Labels, list[float]] = {}
    for row in connection.execute(_DELAYS, {"ids": outbox_ids}) if outbox_ids else ():
        found.setdefault((row.event_type,), []).append(max(0.0, float(row.seconds)))
    return found


def seller_deliveries(
    connection: Connection, seller_ids: Collection[str], since: datetime
) -> dict[str, SellerDelivery]:
    """For sellers to whom something was sent since then."""
    rows = connection.execute(_DELIVERIES, {"sellers": sorted(seller_ids), "since": since})
    return {row.seller_id: SellerDelivery(int(row.superseded), row.failed, row.waiting) for row in rows}
