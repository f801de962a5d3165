"""Which sellers are crawled next."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from mustit_pipeline.crawling.sql import executions
from mustit_pipeline.crawling.steering import open_or_join
from mustit_pipeline.domain.errors import Conflict
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.scheduling.sql.next_sellers import next_sellers


@dataclass(frozen=True, slots=True)
class DueSlice:
    """A slice that a run should start now; `key` is never used twice."""

    seller_id: str
    execution_id: UUID
    slice_no: int

    @property
    def key(self) -> str:
        return f"{self.execution_id}:{self.slice_no}"


def begin_slices(
    database: Database,
    *,
    busy: Collection[str],
    free: int,
    now: datetime,
    slice_seconds: float,
    by_interval: bool = True,
) -> list[DueSlice]:
    """Begin slices in the free slots, for the sellers that have waited longest; crawls that are due are opened.

    Each slice that a crawl has had counts against it: a few huge sellers do not keep others from their first slice, and
    a huge seller still gets its next slice however many others are due. Without `by_interval` only open crawls, first
    crawls and failed plans are started.
    """
    if free <= 0:
        return []
    with database.reading() as connection:
        waiting = next_sellers(connection, free, busy=busy, slice_seconds=slice_seconds, by_interval=by_interval)
    opened: list[tuple[UUID, str]] = []
    for seller in waiting:
        execution_id = seller.execution_id or _open(database, SellerId(seller.seller_id), now)
        if execution_id is not None:
            opened.append((execution_id, seller.seller_id))
    if not opened:
        return []
    with database.transaction() as connection:
        numbers = executions.begin_slices(connection, [execution_id for execution_id, _ in opened])
    return [
        DueSlice(seller_id, execution_id, numbers[execution_id])
        for execution_id, seller_id in opened
        if execution_id in numbers
    ]


def _open(database: Database, seller_id: SellerId, now: datetime) -> UUID | None:
    try:
        return open_or_join(database, seller_id, triggered_by="schedule", now=now).stored.id.value
    except Conflict:
        # Deactivated meanwhile.
        return None
