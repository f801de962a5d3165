"""Failed bodies, processed once more after a fix and without crawling again."""

from collections.abc import Callable
from datetime import datetime

from mustit_pipeline.catalog.processing import ProcessingReport, process
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.store import raw
from mustit_pipeline.store.database import Database


def replay_failed(
    database: Database, *, seller_id: SellerId | None, since: datetime | None, now: Callable[[], datetime]
) -> dict[str, ProcessingReport]:
    """Process the failed bodies of one seller or of all, however often they have been tried; a report per seller."""
    with database.transaction() as connection:
        sellers = raw.replay_failed(connection, None if seller_id is None else seller_id.value, since)
    return {seller: process(database, SellerId(seller), now=now) for seller in sorted(sellers)}
