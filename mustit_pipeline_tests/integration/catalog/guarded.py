"""A seller of the simulated marketplace whose deletions a test watches."""

from uuid import uuid4

from sqlalchemy import text

from mustit_pipeline.foundation.database import Database
from mustit_pipeline.settings import Settings
from mustit_pipeline.simulator.control import MarketplaceControl
from mustit_pipeline_tests.integration.crawls import CrawlOutcome, crawl, register

PRODUCTS = 10


class Guarded:
    """A seller with ten products that has been crawled once."""

    def __init__(self, database: Database, settings: Settings, shop: MarketplaceControl) -> None:
        self.database, self.settings, self.shop = database, settings, shop
        self.seller_id = f"seller-{uuid4().hex[:8]}"
        shop.add_seller(self.seller_id, PRODUCTS)
        register(database, self.seller_id)
        self.crawl()
        self.items = sorted(product["itemNo"] for product in shop.products(self.seller_id))

    def crawl(self, *, limit: int | None = None) -> CrawlOutcome:
        return crawl(self.database, self.settings, self.seller_id, limit=limit)

    def life(self, item: int) -> list[str]:
        query = "SELECT life_cycle FROM product_change_sets WHERE item_no = :item ORDER BY version"
        with self.database.reading() as connection:
            return list(connection.execute(text(query), {"item": item}).scalars())

    def deleted(self) -> list[int]:
        query = "SELECT item_no FROM products WHERE deleted_at IS NOT NULL ORDER BY item_no"
        with self.database.reading() as connection:
            return list(connection.execute(text(query)).scalars())

    def holds(self) -> list[tuple[str, list[int], int]]:
        query = "SELECT status, item_nos, live_count FROM deletion_holds ORDER BY opened_at"
        with self.database.reading() as connection:
            return [(row.status, sorted(row.item_nos), row.live_count) for row in connection.execute(text(query))]
