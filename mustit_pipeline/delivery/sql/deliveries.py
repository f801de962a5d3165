"""What the relay did for each seller, beside what it sent."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text

from mustit_pipeline.domain.states import OutboxStatus
from mustit_pipeline.foundation.tables import BY_TIME
from mustit_pipeline.outbox.sql.outbox_states import COMPLETED, TOLD_VERSIONS, UNSENT


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


def seller_deliveries(
    connection: Connection, seller_ids: Collection[str], since: datetime
) -> dict[str, SellerDelivery]:
    """For sellers to whom something was sent since then."""
    rows = connection.execute(_DELIVERIES, {"sellers": sorted(seller_ids), "since": since})
    return {row.seller_id: SellerDelivery(int(row.superseded), row.failed, row.waiting) for row in rows}
