"""Which sellers are crawled next."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from mustit_pipeline.crawling.executions import open_or_join
from mustit_pipeline.domain.errors import Conflict
from mustit_pipeline.store import executions, sellers
from mustit_pipeline.store.database import Database


@dataclass(frozen=True, slots=True)
class DueSlice:
    """A stretch of work that a run should do now; `key` has never been used for another one."""

    seller_id: str
    execution_id: UUID
    slice_no: int

    @property
    def key(self) -> str:
        return f"{self.execution_id}:{self.slice_no}"


def next_slices(database: Database, *, busy: Collection[str], free: int, now: datetime) -> list[DueSlice]:
    """The slices to start within the free slots: crawls that nobody works on, then sellers whose time has come."""
    if free <= 0:
        return []
    with database.reading() as connection:
        waiting = [entry for entry in executions.workable(connection, limit=free + len(busy)) if entry[1] not in busy][
            :free
        ]
        due = sellers.due(connection, free - len(waiting), busy=busy) if free > len(waiting) else []
    opened = list(waiting)
    for seller_id in due:
        try:
            stored = open_or_join(database, seller_id, triggered_by="schedule", now=now).stored
        except Conflict:
            # Deactivated in the meantime.
            continue
        opened.append((stored.execution.id.value, seller_id.value))
    if not opened:
        return []
    with database.transaction() as connection:
        numbers = executions.next_slices(connection, [execution_id for execution_id, _ in opened])
    return [
        DueSlice(seller_id, execution_id, numbers[execution_id])
        for execution_id, seller_id in opened
        if execution_id in numbers
    ]
