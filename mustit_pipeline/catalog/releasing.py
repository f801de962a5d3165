"""Held changes, let through by somebody who has looked at them."""

from collections.abc import Callable
from datetime import datetime

from mustit_pipeline.catalog.guard import mark_released, open_hold
from mustit_pipeline.catalog.processing import ProcessingReport, process
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.store.database import Database


def release(database: Database, seller_id: SellerId, *, now: Callable[[], datetime]) -> ProcessingReport:
    """Publish what a seller's hold keeps back.

    The hold ends after its last version is written: whoever dies in between finds it open, and releases the rest.
    """
    hold = open_hold(database, seller_id)
    report = process(database, seller_id, now=now, rules=None)
    mark_released(database, hold, now())
    return report
