"""Light crawls: where no seller is due and requests are to spare, sellers are looked at before their interval ends."""

from collections.abc import Collection
from datetime import datetime

from mustit_pipeline.crawling.recrawl import judge_pool, spare_requests
from mustit_pipeline.crawling.sql import executions, recrawl_terms
from mustit_pipeline.crawling.sql.executions import StoredExecution
from mustit_pipeline.crawling.steering import open_light
from mustit_pipeline.domain.errors import Conflict
from mustit_pipeline.domain.recrawl.choosing import hours_until_due
from mustit_pipeline.domain.recrawl.pool import LOWEST_PRICE, is_light_crawl_due
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.scheduling.due import DueSlice
from mustit_pipeline.settings import Settings

# How many more sellers are considered than slots are free: a large one may cost more requests than are to spare.
CONSIDERED = 20


def open_light_slices(
    database: Database, settings: Settings, *, busy: Collection[str], free: int, now: datetime
) -> list[DueSlice]:
    """Open light crawls for the sellers where most is expected per request, and begin their first slices.

    The caller has found no seller that is due. One slot stays free for the next one that is.
    """
    if settings.recrawl == "everything" or free <= 1:
        return []
    judge_pool(database, settings, now)
    opened: list[StoredExecution] = []
    for seller_id in _worthwhile(database, settings, busy=busy, most=free - 1, now=now):
        try:
            stored = open_light(database, seller_id, now)
        except Conflict:
            # Deactivated meanwhile.
            continue
        if stored is not None:
            opened.append(stored)
    if not opened:
        return []
    with database.transaction() as connection:
        numbers = executions.begin_slices(connection, [stored.id.value for stored in opened])
    return [DueSlice(one.seller_id.value, one.id.value, numbers[one.id.value]) for one in opened]


def _worthwhile(
    database: Database, settings: Settings, *, busy: Collection[str], most: int, now: datetime
) -> list[SellerId]:
    """The sellers that are worth a light crawl and whose listing pages the pool can afford."""
    with database.reading() as connection:
        pool = recrawl_terms.read_pool(connection)
        if pool is None or executions.is_due_open(connection):
            return []
        candidates = recrawl_terms.light_candidates(
            connection, pool, page_size=settings.page_size, busy=busy, now=now, limit=most + CONSIDERED
        )
        spare = spare_requests(connection, settings, now) if candidates else None
    if spare is None:
        return []
    price, left = LOWEST_PRICE if spare.is_plenty else pool.price, spare.requests
    found: list[SellerId] = []
    for one in candidates:
        aged = hours_until_due(one.interval_hours, one.hours, pool.kept_age, one.oldest_hours) <= 0
        if one.pages <= left and (aged or is_light_crawl_due(one.worth, price, one.hours)):
            found.append(SellerId(one.seller_id))
            left -= one.pages
    return found[:most]
