"""A web server on a database in which something of everything has happened, for looking at the console.

    python -m mustit_pipeline_tests.e2e.console_world

serves it until Ctrl-C, and prints how to log in.
"""

import socket
import tempfile
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import structlog
import uvicorn
from sqlalchemy import Connection, make_url, text

from mustit_pipeline import embedded
from mustit_pipeline.access import api_keys, users
from mustit_pipeline.agents import roster
from mustit_pipeline.api.context import Ground
from mustit_pipeline.catalog.processing import process
from mustit_pipeline.catalog.reading import reading_rules
from mustit_pipeline.crawling.crawl import Crawl
from mustit_pipeline.crawling.planning import PRODUCT_TYPES
from mustit_pipeline.crawling.steering import open_or_join
from mustit_pipeline.delivery.relay import relay
from mustit_pipeline.domain.access import KeyName, Password, Role, Scope, UserName
from mustit_pipeline.domain.values import CrawlingInterval, SellerId
from mustit_pipeline.foundation import schema
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database, make_engine
from mustit_pipeline.sellers import registry
from mustit_pipeline.settings import Settings
from mustit_pipeline.simulator.control import MarketplaceControl
from mustit_pipeline.simulator.process import start_marketplace, start_product_server
from mustit_pipeline.web import create_web
from mustit_pipeline_tests.conftest import JWT_SECRET, TOKEN_KEY, free_port

ADMIN, VIEWER = "kim", "lee"
PASSWORD = "correct horse battery"
SELLERS = {"dmont": ("D.MONT", 40), "luxury-house": ("럭셔리하우스", 60), "bag & shoes/50%": ("가방 & 구두 50%", 30)}
IDLE_SELLERS = 60
ROUNDS = 6


@dataclass(frozen=True)
class ConsoleWorld:
    """A console that is served, and what to look at."""

    url: str
    database: Database
    settings: Settings
    market_url: str
    # A product with several versions.
    item_no: int

    def advance(self, seller: str) -> None:
        """Let some tasks of the seller's open crawl end."""
        query = text("""
            UPDATE crawling_schedule_executions SET completed_tasks = completed_tasks + 10, updated_at = now()
            WHERE seller_id = :seller AND status = 'RUNNING'
        """)
        with self.database.transaction() as connection:
            connection.execute(query, {"seller": seller})

    def sell(self, seller: str, products: int) -> None:
        """Put a seller on the marketplace."""
        with MarketplaceControl(self.market_url) as market:
            market.add_seller(seller, products)

    def crawl(self, seller: str) -> None:
        """Work on the seller's open crawl until it has ended, as a run does."""
        _crawl(self.database, self.settings, seller)

    def make_trouble(self, name: str) -> "Trouble":
        """Sellers of their own with a held deletion, held changes and events that have failed."""
        made = Trouble(f"gone-{name}", f"jumpy-{name}", 4)
        with MarketplaceControl(self.market_url) as market:
            for seller in (made.gone, made.jumpy):
                market.add_seller(seller, 30)
                registry.register(self.database, SellerId(seller), seller, CrawlingInterval.hours(6), utc_now())
                self.crawl(seller)
            market.remove(made.gone, count=12)
            for product in market.products(made.jumpy)[:25]:
                market.set_fields(made.jumpy, int(product["itemNo"]), discountPrice=1_000)
        for seller in (made.gone, made.jumpy):
            self.crawl(seller)
        query = text("""
            UPDATE product_outbox SET status = 'FAILED', retry_count = 5, attempts = 5, last_status = 422
            WHERE outbox_id IN (SELECT outbox_id FROM product_outbox
                                WHERE status = 'WAITING' AND seller_id = :seller ORDER BY item_no LIMIT :number)
        """)
        with self.database.transaction() as connection:
            connection.execute(query, {"seller": made.gone, "number": made.failed})
        return made

    def first(self, query: str) -> object:
        """The first value of a query."""
        with self.database.reading() as connection:
            return connection.execute(text(query)).scalar()


@dataclass(frozen=True)
class Trouble:
    """What waits for an admin: sellers with a held deletion and with held changes, and how many events have failed."""

    gone: str
    jumpy: str
    failed: int


@contextmanager
def console_world(*, rounds: int = ROUNDS, idle_sellers: int = IDLE_SELLERS) -> Generator[ConsoleWorld]:
    """The server in a thread of this process."""
    with tempfile.TemporaryDirectory(prefix="mustit-console-") as folder:
        home = Path(folder)
        home.chmod(0o755)
        servers = embedded.attach(home / "servers")
        try:
            with (
                start_marketplace(
                    state=home / "market", seed=7, requests_per_window=1_000_000, min_gap_seconds=0
                ) as market,
                start_product_server(state=home / "server") as receiver,
            ):
                settings = Settings(  # pyright: ignore[reportCallIssue]
                    home=home,
                    database_url=servers.database_url,
                    dagster_database_url=str(make_url(servers.database_url).set(drivername="postgresql")),
                    token_key=TOKEN_KEY,
                    jwt_secret=JWT_SECRET,
                    redis_url="off",
                    base_url=market.url,
                    product_server_url=receiver.url,
                    min_request_gap_seconds=0,
                    retry_base_seconds=0.02,
                    page_size=20,
                )
                engine = make_engine(make_url(servers.database_url))
                with engine.begin() as connection:
                    schema.upgrade(connection)
                    roster.ensure_builtin(connection)
                database = Database(engine)
                for name, role in ((ADMIN, Role.ADMIN), (VIEWER, Role.VIEWER)):
                    users.add(database, UserName(name), role, Password(PASSWORD, UserName(name)))
                with MarketplaceControl(market.url) as control:
                    item_no = _populate(database, settings, control, rounds, idle_sellers)
                with _served(Ground(settings, database, settings.signing_keys())) as url:
                    yield ConsoleWorld(url, database, settings, market.url, item_no)
                database.close()
        finally:
            embedded.stop(home / "servers")


def _populate(
    database: Database, settings: Settings, market: MarketplaceControl, rounds: int, idle_sellers: int
) -> int:
    for seller, (name, products) in SELLERS.items():
        market.add_seller(seller, products)
        registry.register(database, SellerId(seller), name, CrawlingInterval.hours(6), utc_now())
    for number in range(idle_sellers):
        seller_id = SellerId(f"seller-{number:03}")
        registry.register(database, seller_id, f"셀러 {number}", CrawlingInterval.days(1 + number % 7), utc_now())
    item_no = int(market.products("dmont")[0]["itemNo"])
    for turn in range(rounds):
        for seller in SELLERS:
            if turn:
                market.random_changes(seller, 9)
            _crawl(database, settings, seller)
        price = 12_540_000 + 35_000 * ((turn * 5) % 4)
        market.set_fields("dmont", item_no, discountPrice=price, stock=3 + turn * 2 % 5)
        relay(database, settings)
        _go_back(database, timedelta(hours=5))
    market.remove("luxury-house", count=25)
    _crawl(database, settings, "luxury-house")
    products = market.products("bag & shoes/50%")
    for product in products[:25]:
        market.set_fields("bag & shoes/50%", int(product["itemNo"]), discountPrice=1_000 + int(product["itemNo"]) % 100)
    _crawl(database, settings, "bag & shoes/50%")
    market.random_changes("dmont", 20)
    _crawl(database, settings, "dmont")
    open_crawl(database, settings, "dmont")
    with database.transaction() as connection:
        _trouble(connection)
    api_keys.create(database, KeyName("erp"), [Scope.TRIGGER], timedelta(days=90))
    return item_no


def _crawl(database: Database, settings: Settings, seller: str) -> None:
    opened = open_or_join(database, SellerId(seller), triggered_by="dagster", now=utc_now())
    work = Crawl(database, settings, opened.stored)
    work.sweep(60)
    work.fetch_products(PRODUCT_TYPES, 60)
    process(database, SellerId(seller), now=utc_now, reading_rules=reading_rules(database, settings))
    work.end()


def open_crawl(database: Database, settings: Settings, seller: str) -> None:
    """A crawl that stands in the middle: its listing is read, its products are not."""
    opened = open_or_join(database, SellerId(seller), triggered_by="person kim", now=utc_now(), full_refetch=True)
    work = Crawl(database, settings, opened.stored)
    work.sweep(60)


def _go_back(database: Database, time_ago: timedelta) -> None:
    """What has happened so far happened earlier: charts show days, not seconds."""
    with database.transaction() as connection:
        for table, columns in (
            ("product_change_sets", ("detected_at",)),
            ("product_outbox", ("created_at", "completed_at", "occurred_at")),
            ("crawling_schedule_executions", ("created_at", "started_at", "ended_at")),
        ):
            moved = ", ".join(f"{column} = {column} - :ago" for column in columns)
            connection.execute(text(f"UPDATE {table} SET {moved}"), {"ago": time_ago})


def _trouble(connection: Connection) -> None:
    """Events that failed, drift, agents that rest, and an alert."""
    statements: Sequence[str] = (
        """UPDATE product_outbox SET status = 'FAILED', retry_count = 5, attempts = 5, last_status = 422,
                  last_error = 'the product server refused the event: brandCode must be known'
           WHERE outbox_id IN (SELECT outbox_id FROM product_outbox WHERE status = 'WAITING' LIMIT 7)""",
        """INSERT INTO schema_drift (path, kind, observed, expected, sample, count, seller_id, item_no)
           VALUES ('detail.ProductInfoModule.giftWrap', 'NEW', 'bool', '', 'true', 128, 'dmont', 1),
                  ('listing.items.appPrice', 'RETYPED', 'int', 'str', '545600', 40, 'luxury-house', NULL)""",
        """UPDATE user_agents SET status = 'SUSPENDED', health = 20, suspended_until = now() + interval '40 min',
                  reason = 'throttled by the marketplace: /mustit-api/facade-api/v1/searchmini-shop-search?' ||
                           'sellerId=dmont&pageNo=0&pageSize=1&order=LATEST'
           WHERE agent_id IN (SELECT agent_id FROM user_agents ORDER BY created_at, user_agent LIMIT 3)""",
        """UPDATE user_agents SET status = 'BLOCKED', health = 60, reason = 'no token was issued 3 times in a row'
           WHERE agent_id IN (SELECT agent_id FROM user_agents ORDER BY created_at, user_agent OFFSET 3 LIMIT 2)""",
        """INSERT INTO alerts (subject, kind, title, detail, opened_at, last_seen_at)
           VALUES ('held deletions luxury-house', 'HELD_DELETIONS', '25 deletions of luxury-house are held back',
                   'A sweep misses 25 of 60 products: `mustit deletions list`, then approve or reject.',
                   now() - interval '2 hours', now())""",
    )
    for statement in statements:
        connection.execute(text(statement))


@contextmanager
def _served(ground: Ground) -> Generator[str]:
    port = free_port()
    config = uvicorn.Config(create_web(ground), host="127.0.0.1", port=port, log_level="warning", access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()


def main() -> None:
    structlog.configure(processors=[structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)])
    with console_world() as world:
        print(f"{world.url}  {ADMIN} or {VIEWER} / {PASSWORD}  product {world.item_no}", flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            return


if __name__ == "__main__":
    main()
