"""A database that grows: sellers are registered, one is really crawled, and its copies fill what is wanted."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.filling import Filler, register_sellers
from benchmarks.job import Stopwatch
from benchmarks.ours import crawl_seller, settings_of
from benchmarks.world import AGENTS, World, connected, opened, register
from mustit_pipeline.delivery.relay import relay
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.settings import Settings
from mustit_pipeline.simulator.control import ProductServerControl
from mustit_pipeline.simulator.process import start_product_server

SIZES = (10_000, 100_000, 1_000_000)
PATTERN, HELD = "pattern", "held"
PATTERN_CRAWLS = 5
PATTERN_CHANGED, PATTERN_REMOVED, HELD_SHARE = 0.02, 0.005, 0.5
PATIENCE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Growing:
    """The database, what works on it, and the servers around it."""

    world: World
    database_url: str
    database: Database
    settings: Settings
    receiver: ProductServerControl

    def filler(self, pattern: int, bodies_every: int) -> Filler:
        """Crawl the pattern, a seller of so many products, which the filler then copies."""
        _make_pattern(self.world, self.database, self.settings, pattern, self.receiver)
        return Filler(self.database, PATTERN, pattern, bodies_every)


@contextmanager
def growing(sellers: int, stored: int) -> Generator[Growing]:
    """A fresh database in which so many sellers are registered, the first of them to be stored."""
    with (
        opened() as world,
        start_product_server(state=world.home / "receiver") as server,
        ProductServerControl(server.url) as receiver,
    ):
        url = world.fresh_database()
        world.prepare_ours(url, PATTERN, AGENTS)
        settings = settings_of(world.job(PATTERN, url, first=True), product_server_url=server.url)
        with connected(url) as database:
            register_sellers(database, sellers, stored, utc_now())
            yield Growing(world, url, database, settings, receiver)


def _make_pattern(
    world: World, database: Database, settings: Settings, products: int, receiver: ProductServerControl
) -> None:
    """Crawls of a seller as they happen: changes, deletions, one failed call, one refused event. And a held one."""
    # What is refused has failed at the end: as a waiting event its copies would be sent while something is timed.
    settings = settings.model_copy(update={"retry_base_seconds": 0.01, "outbox_retry_base_seconds": 0.01})
    market = world.market
    world.add_seller(PATTERN, products)
    refused, failing, *others = (product["itemNo"] for product in market.products(PATTERN))
    for number in range(PATTERN_CRAWLS):
        if number:
            market.random_changes(PATTERN, max(1, round(products * PATTERN_CHANGED)))
        if number == 1:
            market.remove(PATTERN, others[: max(1, round(products * PATTERN_REMOVED))])
        if number == PATTERN_CRAWLS - 1:
            market.fault("wrong_shape", "detail", itemNo=failing)
            market.change(PATTERN, refused, "STOCK")
            receiver.fault("status", "events", status=422, itemNo=refused)
        crawl_seller(database, settings, SellerId(PATTERN), Stopwatch())
        relay(database, settings, patience_seconds=PATIENCE_SECONDS)
    receiver.clear_faults()
    market.clear_faults()
    world.add_seller(HELD, products)
    register(database, HELD)
    for _ in range(2):
        crawl_seller(database, settings, SellerId(HELD), Stopwatch())
        relay(database, settings, patience_seconds=PATIENCE_SECONDS)
        market.remove(HELD, count=round(products * HELD_SHARE / 2))
    crawl_seller(database, settings, SellerId(HELD), Stopwatch())
