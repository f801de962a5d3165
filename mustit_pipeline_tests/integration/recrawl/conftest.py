"""A seller whose crawls follow the recrawl policy."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import text

from mustit_pipeline.domain.states import TaskType
from mustit_pipeline.domain.values import ExecutionId
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.settings import Settings
from mustit_pipeline.simulator.control import MarketplaceControl
from mustit_pipeline.simulator.process import RunningSimulator
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration.crawls import CrawlOutcome, crawl, register

SELLER = "dmont"
PRODUCTS = 12


@dataclass(frozen=True)
class Shop:
    """A crawled seller, and hands on what is known of it."""

    database: Database
    settings: Settings
    market: MarketplaceControl
    items: tuple[int, ...]

    def crawl(self) -> CrawlOutcome:
        return crawl(self.database, self.settings, SELLER)

    def change_listed(self, item: int) -> None:
        """Change a field of a product that its listing entry shows too."""
        name = self.market.product(SELLER, item)["name"]
        self.market.set_fields(SELLER, item, name=f"{name} [한정]")

    def change(self, statement: str, **values: object) -> None:
        with self.database.transaction() as connection:
            connection.execute(text(statement), values)

    def row(self, query: str, **values: object) -> tuple[Any, ...]:
        with self.database.reading() as connection:
            return tuple(connection.execute(text(query), values).one())

    def scalar(self, query: str, **values: object) -> Any:
        [found] = self.row(query, **values)
        return found

    def age(self, hours: float, *items: int) -> None:
        """As if the products had been fetched so many hours earlier; all of them, where none is named."""
        self.change(
            """
            UPDATE recrawl_products SET detail_fetched_at = detail_fetched_at - make_interval(secs => 3600 * :hours),
                   option_fetched_at = option_fetched_at - make_interval(secs => 3600 * :hours)
            WHERE item_no = ANY(CAST(:items AS bigint[]))
            """,
            hours=hours,
            items=list(items or self.items),
        )

    def fetched(self, execution_id: ExecutionId) -> set[tuple[int, TaskType]]:
        """What a crawl has planned of products, whatever became of it."""
        query = text("SELECT item_no, task_type FROM crawler_tasks WHERE execution_id = :id AND item_no IS NOT NULL")
        with self.database.reading() as connection:
            rows = connection.execute(query, {"id": execution_id.value})
            return {(row.item_no, TaskType(row.task_type)) for row in rows}

    def fetched_items(self, outcome: CrawlOutcome) -> set[int]:
        return {item for item, _ in self.fetched(outcome.stored.id)}


OpenShop = Callable[..., Shop]


@pytest.fixture
def open_shop(
    database: Database, make_settings: MakeSettings, marketplace: RunningSimulator, market: MarketplaceControl
) -> OpenShop:
    """Register a seller and crawl it once; gives the shop as it is then."""

    def make(products: int = PRODUCTS, **settings: object) -> Shop:
        values = {"base_url": marketplace.url, "page_size": 5, "recrawl": "adaptive"} | settings
        market.add_seller(SELLER, products)
        register(database, SELLER)
        items = tuple(product["itemNo"] for product in market.products(SELLER))
        shop = Shop(database, make_settings(**values), market, items)
        shop.crawl()
        return shop

    return make
