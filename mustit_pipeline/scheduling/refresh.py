"""Full refreshes: all products of a seller are fetched again, because a recrawl policy may have skipped some."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from mustit_pipeline.crawling.sql import executions
from mustit_pipeline.crawling.steering import open_or_join
from mustit_pipeline.domain.errors import Conflict
from mustit_pipeline.domain.execution import CrawlingScheduleExecution
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.scheduling.due import DueSlice
from mustit_pipeline.scheduling.sql import refreshes
from mustit_pipeline.settings import Settings

TRIGGERED_BY = "full refresh"


@dataclass(frozen=True, slots=True)
class Refreshes:
    """The first slices of full refreshes to start now, and the number of sellers that wait for a free slot."""

    slices: list[DueSlice]
    waiting: int


def open_refreshes(
    database: Database, settings: Settings, *, busy: Collection[str], free: int, now: datetime
) -> Refreshes:
    """Open a full refresh for the sellers with the oldest refresh or try, as many as slots are free."""
    age = timedelta(days=settings.full_refresh_days)
    with database.reading() as connection:
        stale = refreshes.stale(connection, now, age, everything=settings.recrawl == "everything", busy=busy)
    opened: list[CrawlingScheduleExecution] = []
    for one in stale[: max(0, free)]:
        try:
            found = open_or_join(database, one.seller_id, triggered_by=TRIGGERED_BY, now=now, full_refetch=True)
        except Conflict:
            # Deactivated meanwhile.
            continue
        if not found.joined:
            opened.append(found.stored.execution)
    if not opened:
        return Refreshes([], len(stale))
    with database.transaction() as connection:
        numbers = executions.begin_slices(connection, [execution.id.value for execution in opened])
    slices = [
        DueSlice(execution.seller_id.value, execution.id.value, numbers[execution.id.value]) for execution in opened
    ]
    return Refreshes(slices, len(stale) - len(slices))
