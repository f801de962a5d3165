"""What a noisy, lying or changing marketplace does to the catalog, and what killed processors and relays do to it."""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from sqlalchemy import text

from mustit_pipeline.catalog import deletion
from mustit_pipeline.catalog.sql import deletions
from mustit_pipeline.crawling.crawl import Crawl
from mustit_pipeline.crawling.planning import PRODUCT_TYPES
from mustit_pipeline.crawling.steering import cancel, open_or_join
from mustit_pipeline.domain.filters import IdPrefix
from mustit_pipeline.domain.states import HoldStatus, LifeCycle, SweepStatus
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.monitoring.alerting import HELD_DELETIONS, INCOMPLETE_SWEEP, observe
from mustit_pipeline.monitoring.sql import alerts
from mustit_pipeline.settings import Settings
from mustit_pipeline.simulator.control import AppliedChange
from mustit_pipeline_tests.faults.children import processing, relaying, several
from mustit_pipeline_tests.faults.invariants import check_all
from mustit_pipeline_tests.faults.scenarios import LONG, SELLER, Numbers, Size
from mustit_pipeline_tests.faults.world import PATIENCE_SECONDS, World
from mustit_pipeline_tests.integration.crawls import CrawlOutcome, crawl, register

CHANGE_SETS = "SELECT count(*) FROM product_change_sets"
UNFINISHED = """
    SELECT (SELECT count(*) FROM product_raw_data WHERE status = 'PENDING')
         + (SELECT count(*) FROM product_outbox WHERE status <> 'COMPLETED')
"""
HELD_WARNING = "deletions held"
INCOMPLETE_WARNING = "listing seen in part"


def every_change_and_no_other(world: World, size: Size) -> Numbers:
    """Noise on: two crawls of an unchanged seller say nothing, then each of many changes is told as what it is."""
    changes = 500 if size == LONG else 60
    world.market.add_seller(SELLER, max(size.products, changes))
    world.market.settings(noise=True)
    register(world.database, SELLER)
    crawl(world.database, world.settings, SELLER)
    world.deliver(world.settings)
    known, told = world.number(CHANGE_SETS), len(world.receiver.log())
    for _ in range(2):
        outcome = crawl(world.database, world.settings, SELLER)
        world.deliver(world.settings)
        found = (outcome.report.versions, world.number(CHANGE_SETS) - known, len(world.receiver.log()) - told)
        if found != ({}, 0, 0):
            raise AssertionError(f"nothing changed, but there are versions, change sets and events: {found}")
    applied = world.market.random_changes(SELLER, changes)
    outcome = crawl(world.database, world.settings, SELLER)
    world.deliver(world.settings)
    _expect_changes(world, outcome, applied)
    effects = check_all(world, SELLER)
    if effects - told != changes:
        raise AssertionError(f"{changes} changes, {effects - told} events")
    kinds = Counter(str(change.kind) for change in applied)
    return {"products": told, "changes": changes, **kinds, "effects": effects}


def listings_that_lie(world: World, size: Size) -> Numbers:
    """Counts of 0 or 40 % too few, pages missing, repeated, broken or HTML, 40 % gone: nothing goes unapproved."""
    products = size.products if size == LONG else 20
    settings = world.with_settings(page_size=products // 4)
    world.market.add_seller(SELLER, products)
    register(world.database, SELLER)
    crawl(world.database, settings, SELLER)
    world.deliver(settings)
    items = [product["itemNo"] for product in world.market.products(SELLER)]
    told = len(world.receiver.log())
    _expect_alerts(world)

    for kind, missed in (("count_zero", items), ("count_short", items[products * 6 // 10 :])):
        world.market.fault(kind, "listing")
        for _ in range(3):
            _expect_held(world, crawl(world.database, settings, SELLER), set(missed))
        world.market.clear_faults()
        _expect_seen(world, crawl(world.database, settings, SELLER))
    # The count call alone lies: the pages tell of the others.
    world.market.fault("count_short", "listing", count=1)
    _expect_seen(world, crawl(world.database, settings, SELLER))

    for kind in ("empty_page", "repeated_page", "5xx", "html"):
        world.market.fault(kind, "listing", pageNo=2)
        for _ in range(2):
            _expect_incomplete(world, crawl(world.database, settings, SELLER), failed=kind in ("5xx", "html"))
        world.market.clear_faults()
    _expect_seen(world, crawl(world.database, settings, SELLER))
    _expect_untouched(world, told)

    gone = set(world.market.remove(SELLER, count=products * 4 // 10))
    for _ in range(3):
        _expect_held(world, crawl(world.database, settings, SELLER), gone)
    deletion.reject(world.database, _open_hold(world), utc_now())
    _expect_alerts(world)
    _expect_untouched(world, told)
    _expect_held(world, crawl(world.database, settings, SELLER), gone)
    approved = deletion.approve(world.database, _open_hold(world), utc_now())
    if set(approved.deleted) != gone or _deleted(world) != gone:
        raise AssertionError(f"{len(gone)} products were approved, {len(_deleted(world))} are deleted")
    _expect_seen(world, crawl(world.database, settings, SELLER))
    told = _expect_events(world, settings, told, {(item, "PRODUCT_DELETED") for item in gone})

    world.market.restore(SELLER, sorted(gone))
    back = crawl(world.database, settings, SELLER)
    if back.report.versions != {LifeCycle.RESTORED: len(gone)}:
        raise AssertionError(f"{len(gone)} products returned: {back.report.versions}")
    _expect_events(world, settings, told, {(item, "PRODUCT_CREATED") for item in gone})
    return {"products": products, "deleted and restored": len(gone), "effects": check_all(world, SELLER, settings)}


def processors_and_relays_killed_at_random_moments(world: World, size: Size) -> Numbers:
    """Two of each at once, killed again and again while the marketplace changes: each version takes effect once."""
    world.market.add_seller(SELLER, size.products)
    register(world.database, SELLER)
    world.receiver.fault("slow", "events", seconds=0.1)
    moments = random.Random(7)
    kills = in_the_middle = 0
    for _ in range(size.kills):
        with several(
            *[(processing, (world.settings, SELLER))] * 2,
            *[(relaying, (world.settings,))] * 2,
        ) as processes:
            _fetch(world)
            time.sleep(moments.uniform(0.0, 0.4))
            kills += sum(process.is_alive() for process in processes)
        in_the_middle += world.number(UNFINISHED) > 0
        world.market.random_changes(SELLER, size.products // 3)
    if kills < 4 * size.kills or not in_the_middle:
        raise AssertionError(f"{kills} kills, {in_the_middle} rounds with something left to do: this proves little")
    world.receiver.clear_faults()
    crawl(world.database, world.settings, SELLER)
    return {"kills": kills, "rounds left unfinished": in_the_middle, "effects": check_all(world, SELLER)}


def _expect_changes(world: World, outcome: CrawlOutcome, applied: list[AppliedChange]) -> None:
    """Exactly the applied changes, field by field with old and new value: in the change sets, and in the events."""
    expected = {change.item_no: _fields(change.changes) for change in applied}
    query = text("SELECT item_no, life_cycle, change_types, changes FROM product_change_sets WHERE execution_id = :id")
    with world.database.reading() as connection:
        rows = connection.execute(query, {"id": outcome.stored.execution.id.value}).all()
    if {row.item_no: _fields(row.changes) for row in rows} != expected or len(rows) != len(expected):
        raise AssertionError(f"{len(expected)} products were changed, the {len(rows)} change sets say otherwise")
    types = {row.item_no: (row.life_cycle, row.change_types) for row in rows}
    if types != {change.item_no: (LifeCycle.UPDATED.value, [change.kind]) for change in applied}:
        raise AssertionError("a change was given another type than its own")
    events = [effect for effect in world.receiver.log() if effect.version > 1]
    if {event.item_no: _fields(event.changes) for event in events} != expected or len(events) != len(expected):
        raise AssertionError(f"{len(expected)} products were changed, the {len(events)} events say otherwise")
    if {event.event_type for event in events} != {"PRODUCT_UPDATED"}:
        raise AssertionError("a change was told as something else than an update")


def _fields(changes: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(changes, key=lambda change: change["field"])


def _fetch(world: World) -> None:
    """A crawl that is over before its bodies are processed, by another process."""
    opened = open_or_join(world.database, SellerId(SELLER), triggered_by="chaos", now=utc_now())
    work = Crawl(world.database, world.settings, opened.stored)
    work.sweep(PATIENCE_SECONDS)
    work.fetch_products(PRODUCT_TYPES, PATIENCE_SECONDS)
    ended = cancel(world.database, opened.stored.execution.id, utc_now()).execution
    if ended.remaining or ended.failed_tasks:
        raise AssertionError(f"{ended.remaining} tasks were not done, {ended.failed_tasks} failed")


def _expect_held(world: World, outcome: CrawlOutcome, items: set[int]) -> None:
    """The sweep is complete, but what it misses is held back, and an alert says so."""
    if outcome.stored.sweep_status is not SweepStatus.COMPLETE:
        raise AssertionError(f"the sweep is {outcome.stored.sweep_status}")
    found = _expect_open_holds(world, 1)
    if found != items or _deleted(world):
        raise AssertionError(f"{len(found)} products are held, {len(items)} are missed, {_deleted(world)} deleted")
    _expect_warning(world, outcome, HELD_WARNING)
    _expect_alerts(world, HELD_DELETIONS)


def _expect_incomplete(world: World, outcome: CrawlOutcome, *, failed: bool) -> None:
    """The sweep knows that it has not seen everything, says so, and judges no product."""
    stored = outcome.stored
    if stored.sweep_status is not SweepStatus.INCOMPLETE or bool(stored.execution.failed_tasks) is not failed:
        raise AssertionError(f"the sweep is {stored.sweep_status}, {stored.execution.failed_tasks} tasks failed")
    _expect_open_holds(world, 0)
    _expect_warning(world, outcome, INCOMPLETE_WARNING)
    _expect_alerts(world, INCOMPLETE_SWEEP)


def _expect_seen(world: World, outcome: CrawlOutcome) -> None:
    """The whole listing was seen and believed: the alert is over."""
    if outcome.stored.sweep_status is not SweepStatus.COMPLETE:
        raise AssertionError(f"the sweep is {outcome.stored.sweep_status}")
    _expect_open_holds(world, 0)
    _expect_alerts(world)


def _expect_alerts(world: World, *kinds: str) -> None:
    """Of what is wrong, looked at twice, these alerts are open, each about the seller; all others have ended."""
    for _ in range(2):
        observe(world.database, world.with_settings(alert_calm_seconds=0), utc_now())
    with world.database.reading() as connection:
        found = alerts.newest(connection, everything=False, limit=10).rows
    if [alert.kind for alert in found] != list(kinds) or any(SELLER not in alert.subject for alert in found):
        raise AssertionError(f"open alerts: {[alert.subject for alert in found]}, not {kinds}")


def _expect_warning(world: World, outcome: CrawlOutcome, words: str) -> None:
    """This crawl has warned in the log."""
    crawled = str(outcome.stored.execution.id)
    told = [line for line in world.logged().splitlines() if words in line and crawled in line]
    if len(told) != 1 or '"warning"' not in told[0]:
        raise AssertionError(f"{words}: told {len(told)} times")


def _expect_open_holds(world: World, number: int) -> set[int]:
    with world.database.reading() as connection:
        found = deletions.newest_holds(connection, status=HoldStatus.OPEN, seller_id=None, limit=10).rows
    if len(found) != number:
        raise AssertionError(f"{len(found)} holds are open, not {number}")
    return {item_no for hold in found for item_no in hold.item_nos}


def _open_hold(world: World) -> IdPrefix:
    with world.database.reading() as connection:
        [hold] = deletions.newest_holds(connection, status=HoldStatus.OPEN, seller_id=None, limit=10).rows
    return IdPrefix(str(hold.id))


def _deleted(world: World) -> set[int]:
    with world.database.reading() as connection:
        return set(connection.execute(text("SELECT item_no FROM products WHERE deleted_at IS NOT NULL")).scalars())


def _expect_untouched(world: World, told: int) -> None:
    """Nothing is deleted, and the product server has heard nothing new."""
    world.deliver(world.settings)
    if _deleted(world) or len(world.receiver.log()) != told:
        raise AssertionError(f"deleted {_deleted(world)}, {len(world.receiver.log()) - told} new events")


def _expect_events(world: World, settings: Settings, told: int, expected: set[tuple[int, str]]) -> int:
    """Exactly these events are new, each once; returns how many there are by now."""
    world.deliver(settings)
    log = world.receiver.log()
    fresh = Counter((effect.item_no, effect.event_type) for effect in log[told:])
    if fresh != Counter(expected):
        raise AssertionError(f"{len(expected)} events were due, {fresh.total()} came")
    return len(log)


CATALOG_SCENARIOS: tuple[Callable[[World, Size], Numbers], ...] = (
    every_change_and_no_other,
    listings_that_lie,
    processors_and_relays_killed_at_random_moments,
)
