"""A whole crawl without Dagster around it, for tests of the rooms."""

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import event

from mustit_pipeline.catalog.processing import ProcessingReport, process
from mustit_pipeline.catalog.reading import reading_rules
from mustit_pipeline.crawling.crawl import Crawl
from mustit_pipeline.crawling.planning import PRODUCT_TYPES
from mustit_pipeline.crawling.sql.executions import StoredExecution
from mustit_pipeline.crawling.steering import open_or_join
from mustit_pipeline.domain.values import CrawlingInterval, SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.sellers import registry
from mustit_pipeline.settings import Settings
from mustit_pipeline.simulator.control import MarketplaceControl, ProductServerControl

ROW_LOCK = "FOR (NO KEY )?UPDATE"


@dataclass(frozen=True)
class CrawlOutcome:
    """What a crawl came to."""

    stored: StoredExecution
    report: ProcessingReport


def register(database: Database, *seller_ids: str) -> None:
    """Register sellers that a test crawls."""
    for seller_id in seller_ids:
        registry.register(database, SellerId(seller_id), seller_id, CrawlingInterval.DEFAULT, utc_now())


@contextmanager
def once_before(database: Database, statement_like: str, act: Callable[[], object]) -> Generator[None]:
    """Do something in the moment before the first statement of that kind."""
    done = False

    def once(_: object, __: object, statement: str, *___: object) -> None:
        nonlocal done
        if not done and re.search(statement_like, statement):
            done = True
            act()

    event.listen(database.engine, "before_cursor_execute", once)
    try:
        yield
    finally:
        event.remove(database.engine, "before_cursor_execute", once)
    assert done


def crawl(database: Database, settings: Settings, seller_id: str, *, limit: int | None = None) -> CrawlOutcome:
    """One crawl from its opening to its end, in one slice."""
    opened = open_or_join(database, SellerId(seller_id), triggered_by="test", now=utc_now(), product_limit=limit)
    work = Crawl(database, settings, opened.stored)
    work.sweep(60)
    work.fetch_products(PRODUCT_TYPES, 60)
    rules = reading_rules(database, settings)
    report = process(database, SellerId(seller_id), now=utc_now, reading_rules=rules)
    return CrawlOutcome(work.end(), report)


def differences(market: MarketplaceControl, receiver: ProductServerControl, seller_id: str) -> dict[int, object]:
    """Products on which marketplace and product server do not agree, field by field."""
    expected = {product["itemNo"]: product for product in market.products(seller_id)}
    held = receiver.products(seller_id)
    return {
        item: (expected.get(item), held.get(item))
        for item in expected.keys() | held.keys()
        if expected.get(item) != held.get(item)
    }
