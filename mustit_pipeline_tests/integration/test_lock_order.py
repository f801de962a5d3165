"""Every transaction takes its locks in the one order that ARCHITECTURE.md states."""

from datetime import timedelta

import pytest
from sqlalchemy import text

from mustit_pipeline.access import api_keys, login_links, users
from mustit_pipeline.access.audit import AuditedDatabase
from mustit_pipeline.access.login import authenticate
from mustit_pipeline.access.sql.audit_log import Actor
from mustit_pipeline.agents import roster
from mustit_pipeline.catalog import deletion, releasing
from mustit_pipeline.catalog.processing import BatchSize
from mustit_pipeline.catalog.replay import replay_failed, replay_stored
from mustit_pipeline.catalog.sql import deletions
from mustit_pipeline.crawling import steering
from mustit_pipeline.crawling.crawl import Crawl
from mustit_pipeline.crawling.planning import PRODUCT_TYPES, plan_pages, plan_products
from mustit_pipeline.crawling.results import ResultStore, TaskResult
from mustit_pipeline.crawling.sql import leases, tasks
from mustit_pipeline.crawling.sql.leases import LeasedTask
from mustit_pipeline.delivery.reconcile import reconcile
from mustit_pipeline.delivery.relay import relay
from mustit_pipeline.domain.access import ActorKind, KeyName, Password, Role, Scope, UserName
from mustit_pipeline.domain.filters import IdPrefix
from mustit_pipeline.domain.states import HoldStatus, TaskType
from mustit_pipeline.domain.values import CrawlingInterval, SellerId
from mustit_pipeline.foundation import advisory_locks
from mustit_pipeline.foundation.advisory_locks import Numbered, Only, PerName
from mustit_pipeline.foundation.audited import Target
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.marketplace.endpoints import Endpoints
from mustit_pipeline.marketplace.parsing import parse_listing
from mustit_pipeline.monitoring import alerting
from mustit_pipeline.monitoring.notifications import notify
from mustit_pipeline.monitoring.spot_checks import spot_check
from mustit_pipeline.scheduling.due import begin_slices
from mustit_pipeline.scheduling.refresh import open_refreshes
from mustit_pipeline.sellers import registry
from mustit_pipeline.settings import Settings
from mustit_pipeline.simulator.control import MarketplaceControl, ProductServerControl
from mustit_pipeline.simulator.process import RunningSimulator
from mustit_pipeline.upkeep import recovery
from mustit_pipeline.upkeep.maintenance import maintain
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration.catalog.shelf import Shelf
from mustit_pipeline_tests.integration.crawls import crawl, register
from mustit_pipeline_tests.integration.lock_order import (
    EXCEPTIONS,
    Lock,
    documented_order,
    locks_of,
    page_on_locks,
    watched,
)
from mustit_pipeline_tests.unit.marketplace import bodies

SELLER = "dmont"
# Locks that one transaction or another of a day is known to hold together, in their order.
SEEN = {
    ("AUDIT", "API_KEY"),
    ("AUDIT", "users"),
    ("AUDIT", "crawling_schedule_executions"),
    ("LOGIN_ADDRESS", "login_failures"),
    ("users", "login_failures"),
    ("sellers", "crawling_schedules"),
    ("crawling_schedules", "scheduler_outbox"),
    ("scheduler_outbox", "crawling_schedule_executions"),
    ("crawling_schedule_executions", "crawler_tasks"),
    ("crawling_schedule_executions", "deletion_holds"),
    ("crawler_tasks", "products"),
    ("CATALOG", "deletion_holds"),
    ("CATALOG", "products"),
    ("deletion_holds", "products"),
    ("products", "product_raw_data"),
    ("products", "change_holds"),
    ("change_holds", "product_outbox"),
    ("products", "product_outbox"),
    ("PRODUCT_OUTBOX_CLAIM", "product_outbox"),
    ("product_outbox", "circuit_breakers"),
    ("products", "recrawl_products"),
    ("recrawl_products", "recrawl_sellers"),
    ("recrawl_sellers", "recrawl_pool"),
    ("REQUEST_COUNTER", "agent_limits"),
    ("agent_limits", "user_agents"),
}


def test_a_day_of_the_pipeline_takes_its_locks_in_the_documented_order(
    database: Database,
    make_settings: MakeSettings,
    marketplace: RunningSimulator,
    product_server: RunningSimulator,
    market: MarketplaceControl,
    receiver: ProductServerControl,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = make_settings(
        base_url=marketplace.url,
        product_server_url=product_server.url,
        page_size=20,
        outbox_retry_base_seconds=0.01,
    )
    market.add_seller(SELLER, 30)

    with watched(documented_order()) as watch:
        register(database, SELLER)
        begin_slices(database, busy=[], free=4, now=utc_now(), slice_seconds=600)
        crawl_and_deliver(database, settings, market, receiver)
        decide_on_deletions(database, settings, market)
        replay_and_reconcile(database, settings)
        store_pages_and_deletions_of_many_sellers(database, settings)
        monkeypatch.setattr(releasing, "USUAL_BATCH", BatchSize(versions=5))
        release_held_changes(database)
        look_after_everything(database, settings)
        stop_crawling(database, settings)
        let_people_in(database, settings)

    assert sorted(watch.undocumented) == []
    assert not watch.out_of_order, "\n".join(sorted(watch.out_of_order))
    assert watch.excepted == EXCEPTIONS.keys()
    assert watch.pairs >= SEEN


def crawl_and_deliver(
    database: Database, settings: Settings, market: MarketplaceControl, receiver: ProductServerControl
) -> None:
    """Crawls that bring, change and miss products, and a product server that refuses and fails meanwhile."""
    crawl(database, settings, SELLER)
    relay(database, settings)
    market.random_changes(SELLER, 18)
    crawl(database, settings.model_copy(update={"recrawl": "adaptive"}), SELLER)
    market.remove(SELLER, count=2)
    receiver.fault("status", "events", status=500, count=3)
    for _ in range(3):
        crawl(database, settings, SELLER)
        relay(database, settings)


def decide_on_deletions(database: Database, settings: Settings, market: MarketplaceControl) -> None:
    """A listing that misses too much twice: one hold is approved, the next rejected."""
    for decide in (deletion.approve, deletion.reject):
        market.remove(SELLER, count=6)
        crawl(database, settings, SELLER)
        with database.reading() as connection:
            [hold] = deletions.newest_holds(connection, status=HoldStatus.OPEN, seller_id=None, limit=5).rows
        decide(by_a_person(database), IdPrefix(str(hold.id)), utc_now())


def replay_and_reconcile(database: Database, settings: Settings) -> None:
    """Bodies are read anew, a product is merged anew, and what the product server lacks is sent again."""
    with database.transaction() as connection:
        connection.execute(
            text("UPDATE products SET data = replace(data, '\"name\"', '\"nom\"') WHERE item_no % 2 = 0")
        )
    replay_failed(database, seller_id=None, since=None, now=utc_now)
    replay_stored(database, SellerId(SELLER), now=utc_now)
    relay(database, settings)
    with database.transaction() as connection:
        connection.execute(text("UPDATE products SET delivered_version = 1 WHERE delivered_version > 1"))
    reconcile(database, settings, seller_id=None, resend=True, now=utc_now)
    relay(database, settings)


def store_pages_and_deletions_of_many_sellers(database: Database, settings: Settings) -> None:
    """One batch of a worker that serves all crawls: of each seller a page, and the word that a product is gone."""
    shelves = Shelf(database, "Z"), Shelf(database, "a")
    endpoints = Endpoints.from_settings(settings)
    results: list[TaskResult] = []
    for shelf in shelves:
        shelf.crawl(1, 2)
        shelf.change("UPDATE products SET absent_sweeps = 2 WHERE seller_id = :s AND item_no = 2", s=shelf.seller_id)
        home = shelf.open().home
        with database.transaction() as connection:
            pages = plan_pages(endpoints, SellerId(shelf.seller_id), 1, None)
            tasks.add(connection, home, [*pages, *plan_products(endpoints, {2: 1}, [TaskType.PRODUCT_DETAIL])])
            claimed = leases.claim(
                connection, home, list(TaskType), owner="me", limit=9, lease_seconds=60, max_retries=2
            )
        results += [_result(lease) for lease in claimed]
    stored = ResultStore(database, settings, endpoints).store(results)
    assert stored.completed == 4
    with database.reading() as connection:
        query = text("SELECT count(*) FROM products WHERE deleted_at IS NOT NULL AND seller_id IN ('Z', 'a')")
        assert connection.execute(query).scalar_one() == 2
    for shelf in shelves:
        shelf.end()


def _result(lease: LeasedTask) -> TaskResult:
    lease.task.complete(utc_now())
    if lease.task.task_type is TaskType.PRODUCT_DETAIL:
        return TaskResult(lease, gone=True)
    page = bodies.encoded(bodies.listing(bodies.listing_item(itemNo=1), count=1))
    return TaskResult(lease, body=page.decode(), page=parse_listing(page))


def release_held_changes(database: Database) -> None:
    """Prices that fall too far are held, and a person lets them through, in more than one batch."""
    shelf = Shelf(database, "held")
    items = range(1, 31)
    for price in (10_000, 10):
        if price == 10:
            shelf.open()
        shelf.listing(*items)
        for item in items:
            shelf.detail(item, normalPrice=price, sellingPrice=price, discountPrice=price)
            shelf.options(item)
        shelf.swept()
        held = shelf.process().held
        shelf.end()
    assert held is not None
    released = releasing.release(by_a_person(database), SellerId(shelf.seller_id), now=utc_now)
    assert sum(released.versions.values()) == len(items)


def look_after_everything(database: Database, settings: Settings) -> None:
    recovery.recover(database, settings, utc_now, busy=[], idle_seconds=0)
    open_refreshes(database, settings, busy=[], free=4, now=utc_now())
    begin_slices(database, busy=[], free=4, now=utc_now(), slice_seconds=600)
    alerting.observe(database, settings, utc_now())
    notify(database, settings, utc_now())
    spot_check(database, settings)
    maintain(database, settings, utc_now())


def stop_crawling(database: Database, settings: Settings) -> None:
    seller_id, audited = SellerId(SELLER), by_a_person(database)
    opened = steering.open_or_join(audited, seller_id, triggered_by="test", now=utc_now()).stored
    Crawl(database, settings, opened).plan_known_products(PRODUCT_TYPES)
    steering.pause(audited, opened.execution.id)
    steering.resume(audited, opened.execution.id)
    steering.cancel(audited, opened.execution.id, utc_now())
    steering.open_or_join(database, seller_id, triggered_by="test", now=utc_now())
    registry.change_interval(audited, seller_id, CrawlingInterval.parse("6h"), utc_now())
    steering.deactivate_seller(audited, seller_id, utc_now())
    registry.activate(audited, seller_id, utc_now())


def let_people_in(database: Database, settings: Settings) -> None:
    """Users, keys and logins, and an agent that an admin blocks."""
    kim, lee, password = UserName("kim"), UserName("lee"), "correct horse battery"
    users.add(by_a_person(database), kim, Role.ADMIN, Password(password, kim))
    users.add(by_a_person(database), lee, Role.VIEWER, None)
    users.change_role(by_a_person(database), lee, Role.ADMIN)
    login_links.use_link(database, login_links.make_link(by_a_person(database), lee).text)
    authenticate(database, "kim", password, "127.0.0.1")
    key = api_keys.create(by_a_person(database), KeyName("batch"), [Scope.TRIGGER], timedelta(days=1))
    api_keys.verify_key(database, key.text, Scope.TRIGGER)
    api_keys.revoke(by_a_person(database), key.key.id)
    with by_a_person(database).transaction() as connection:
        agent_id = roster.list_agents(connection)[0].agent_id
        roster.block(connection, agent_id)
        roster.unblock(connection, settings, agent_id)


def by_a_person(database: Database) -> AuditedDatabase:
    return AuditedDatabase(database, Actor(ActorKind.PERSON, "kim"), "test", Target("what a person changes"))


def test_a_transaction_that_takes_its_locks_the_other_way_round_is_noticed(database: Database) -> None:
    register(database, SELLER)
    opened = steering.open_or_join(database, SellerId(SELLER), triggered_by="test", now=utc_now()).stored
    with watched(documented_order()) as watch, database.transaction() as connection:
        connection.execute(text("SELECT FROM crawling_schedule_executions FOR UPDATE"))
        connection.execute(text("SELECT FROM sellers WHERE seller_id = :s FOR NO KEY UPDATE"), {"s": SELLER})
        advisory_locks.lock(connection, PerName.CATALOG.of(SELLER))
        advisory_locks.lock(connection, Only.TASK_PARTITIONS)
        # Held already.
        tasks.add(connection, opened.home, [])
        connection.execute(text("UPDATE crawling_schedule_executions SET requests = 1"))
    assert sorted(found.split(":")[0] for found in watch.out_of_order) == [
        "TASK_PARTITIONS after CATALOG",
        "sellers after crawling_schedule_executions",
    ]


@pytest.mark.parametrize(
    ("statement", "locks"),
    [
        ("SELECT p.x FROM products p JOIN sellers s ON true FOR NO KEY UPDATE OF p", [Lock("products")]),
        ("SELECT x FROM sellers JOIN crawling_schedules ON true FOR UPDATE",
         [Lock("sellers"), Lock("crawling_schedules")]),
        ("SELECT x FROM sellers WHERE x = ANY(ARRAY(SELECT x FROM products)) FOR UPDATE", [Lock("sellers")]),
        ("WITH a AS (SELECT x FROM products FOR UPDATE SKIP LOCKED) UPDATE products SET x = 1",
         [Lock("products", skips=True), Lock("products", skips=True)]),
        ("INSERT INTO products (x) SELECT 1 ON CONFLICT (x) DO UPDATE SET x = 2", [Lock("products")]),
        ("INSERT INTO products (x) SELECT 1 ON CONFLICT (x) DO NOTHING", []),
        ("SELECT x FROM products", []),
    ],
)  # fmt: skip
def test_what_a_statement_locks_is_read_from_it(statement: str, locks: list[Lock]) -> None:
    assert list(locks_of(statement, {})) == locks


def test_an_advisory_lock_is_known_by_its_key() -> None:
    key = int(Only.PRODUCT_OUTBOX_CLAIM)
    statement = "SELECT pg_advisory_xact_lock(%(key)s::BIGINT)"
    assert list(locks_of(statement, {"key": key})) == [Lock("PRODUCT_OUTBOX_CLAIM", key)]


def test_the_page_on_locks_has_every_advisory_lock_with_its_key() -> None:
    cells = [[cell.strip() for cell in line.split("|")] for line in page_on_locks().splitlines() if line[:1] == "|"]
    keys = {row[1]: row[2] for row in cells[2:]}
    assert keys.keys() == {one.name for one in (*Only, *PerName, *Numbered)}
    assert {name: keys[name] for name in Only.__members__} == {one.name: str(int(one)) for one in Only}
