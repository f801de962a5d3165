"""The table of statements: whatever the code asks of a table that grows is called here, with how much it may look at.

One place to add a statement to; two tests say when one is missing.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Connection, text

from mustit_pipeline.access.sql import audit_log, login_failures, login_links, tokens
from mustit_pipeline.access.sql.audit_log import AuditFilter
from mustit_pipeline.access.sql.tokens import HeldToken
from mustit_pipeline.agents.sql import agent_bookings, agent_pool
from mustit_pipeline.agents.sql.agent_bookings import AgentLimits, BookingRecord
from mustit_pipeline.catalog.sql import (
    change_holds,
    deletions,
    history,
    product_list,
    products,
    publication,
    raw,
    retention,
)
from mustit_pipeline.catalog.sql.drift import Sighting
from mustit_pipeline.catalog.sql.history import ChangeFilter, ChangeKey
from mustit_pipeline.catalog.sql.product_list import ProductKey
from mustit_pipeline.catalog.sql.products import AbsorbedProduct
from mustit_pipeline.catalog.sql.publication import NewVersion
from mustit_pipeline.catalog.sql.raw import NewRaw, RawFailure
from mustit_pipeline.catalog.sql.retention import Night
from mustit_pipeline.crawling.sql import (
    budget,
    executions,
    leases,
    messages,
    recrawl_terms,
    slices,
    task_months,
    tasks,
)
from mustit_pipeline.crawling.sql.choosing import Chooser
from mustit_pipeline.crawling.sql.executions import record_drift
from mustit_pipeline.crawling.sql.learning import Fetched, learn
from mustit_pipeline.crawling.sql.leases import LeasedTask
from mustit_pipeline.crawling.sql.messages import WaitingTask
from mustit_pipeline.crawling.sql.recrawl_terms import PoolTerms
from mustit_pipeline.crawling.sql.slices import EndedSlice
from mustit_pipeline.crawling.sql.tasks import PlannedTask, TaskHome
from mustit_pipeline.delivery.reconcile import resend
from mustit_pipeline.delivery.sql import deliveries, reconciliation
from mustit_pipeline.delivery.sql.reconciliation import Correction
from mustit_pipeline.delivery.sql.settling import settle
from mustit_pipeline.domain.access import UserName
from mustit_pipeline.domain.change_hold import Suspicion
from mustit_pipeline.domain.drift import Deviation, DriftKind
from mustit_pipeline.domain.filters import ChangeKind, IdPrefix
from mustit_pipeline.domain.outbox import ProductOutbox
from mustit_pipeline.domain.recrawl.choosing import Terms
from mustit_pipeline.domain.states import (
    ExecutionStatus,
    LifeCycle,
    OutboxStatus,
    RawStatus,
    SliceOutcome,
    SweepStatus,
    TaskType,
    TruthVerdict,
)
from mustit_pipeline.domain.trigger import ParkReason
from mustit_pipeline.domain.values import CrawlingInterval, ExecutionId, IntervalUnit, ItemNo, RequestUrl, SellerId
from mustit_pipeline.foundation.aging import Aged, count_aged, delete_aged
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.lake.sql import catalog_states, field_changes
from mustit_pipeline.monitoring.sql import activity, alerts, criteria, exposition, health, metrics, spot_checks
from mustit_pipeline.monitoring.sql.activity import Moving
from mustit_pipeline.monitoring.sql.alerts import AlertKey, Condition, Outcome
from mustit_pipeline.monitoring.sql.spot_checks import Drawn, Sample
from mustit_pipeline.outbox.sql import outbox, outbox_list
from mustit_pipeline.outbox.sql.outbox import Settlement
from mustit_pipeline.outbox.sql.outbox_list import OutboxKey
from mustit_pipeline.scheduling.sql import next_sellers, refreshes, triggers
from mustit_pipeline.sellers import registry
from mustit_pipeline.sellers.sql import scheduler_outbox, sellers
from mustit_pipeline.tallies.sql import tallies
from mustit_pipeline.tallies.sql.tallies import Subject
from mustit_pipeline.upkeep.sql import stuck
from mustit_pipeline_tests.integration.plans.crowd import (
    DAYS,
    NEW_PRODUCTS,
    OLD_MONTH,
    PRODUCTS,
    READY,
    SELLERS,
    WAITING,
)
from mustit_pipeline_tests.integration.rows import MONTH

BATCH = 100
LIMITS = AgentLimits(80, 3600, 1)
AGENTS, IN_WINDOW = 50, 100
ALL_PRODUCTS = SELLERS * PRODUCTS
TYPES = [TaskType.PRODUCT_DETAIL, TaskType.PRODUCT_OPTION]
DAY, HOUR = timedelta(days=1), timedelta(hours=1)


class Within(Database):
    """For what opens its own transactions: all of them are the caller's."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection.engine)
        self._connection = connection

    @contextmanager
    def transaction(self) -> Generator[Connection]:
        yield self._connection


class Scene:
    """Rows of the newcomers, to work with."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.now = utc_now()
        self.waiting, self.ready = SellerId(WAITING), SellerId(READY)
        self.items = self._all("SELECT item_no FROM products WHERE seller_id = :s ORDER BY 1 LIMIT :n", READY)
        self.raw_ids = self._all(
            "SELECT raw_id FROM product_raw_data WHERE seller_id = :s AND status = 'PENDING' LIMIT :n", WAITING
        )
        self.outbox_id = self._all("SELECT outbox_id FROM product_outbox WHERE seller_id = :s LIMIT :n", READY)[0]
        self.failed_id = self._all(
            "SELECT outbox_id FROM product_outbox WHERE seller_id = :s AND status = 'FAILED' LIMIT :n", READY
        )[0]
        self.hold = deletions.newest_holds(connection, status=None, seller_id=self.waiting, limit=1).rows[0]
        self.changes_held = change_holds.find_open(connection, self.waiting)
        self.agents: list[UUID] = list(connection.execute(text("SELECT agent_id FROM user_agents")).scalars())
        self.booking_id = connection.execute(text("SELECT booking_id FROM agent_bookings LIMIT 1")).scalar_one()
        found = executions.find_open(connection, self.waiting)
        assert found is not None
        self.stored = found
        self.home = TaskHome(found.execution.id.value, WAITING, MONTH)
        over = executions.find_open(connection, self.ready)
        assert over is not None
        self.nearly_done = TaskHome(over.execution.id.value, READY, MONTH)
        published = text(
            "SELECT task_id FROM crawler_tasks WHERE execution_id = :id AND status = 'PUBLISHED' ORDER BY seq LIMIT :n"
        )
        self.task_ids: list[UUID] = list(
            connection.execute(published, {"id": self.home.execution_id, "n": BATCH}).scalars()
        )

    def _all(self, query: str, seller: str) -> list[Any]:
        return list(self._connection.execute(text(query), {"s": seller, "n": BATCH}).scalars())

    @property
    def late(self) -> list[NewRaw]:
        home = self.home
        items = [None, *self._all("SELECT item_no FROM products WHERE seller_id = :s LIMIT :n", WAITING)]
        return [
            NewRaw(
                WAITING,
                home.execution_id,
                uuid4(),
                TaskType.MINISHOP if item is None else TaskType.PRODUCT_DETAIL,
                item,
                0 if item is None else None,
                "{}",
                self.now,
            )
            for item in items
        ]

    @property
    def ended(self) -> list[EndedSlice]:
        home = self.home
        return [EndedSlice(f"run {n}", home.execution_id, SliceOutcome.CRASHED, self.now) for n in range(BATCH)]

    @property
    def planned(self) -> list[PlannedTask]:
        return [
            PlannedTask(RequestUrl(f"/item/{item}/detail/top", TaskType.PRODUCT_DETAIL), 20, item_no=item)
            for item in range(1, BATCH + 1)
        ]

    def unsent(self, connection: Connection) -> list[WaitingTask]:
        return messages.waiting(connection, limit=BATCH, pages=BATCH, most=160)

    def leased(self, connection: Connection) -> list[LeasedTask]:
        return leases.claim(connection, self.home, TYPES, owner="me", limit=BATCH, lease_seconds=30, max_retries=2)

    def completed(self, connection: Connection) -> list[tuple[LeasedTask, float]]:
        held = self.leased(connection)
        for lease in held:
            lease.task.complete(self.now)
        return [(lease, 0.0) for lease in held]

    def versions(self, connection: Connection) -> list[NewVersion]:
        known = products.lock(connection, READY, self.items).values()
        for product in known:
            product.publish()
        return [NewVersion(product, LifeCycle.UPDATED, ["PRICE"], [], None, "x") for product in known]

    def settlements(self, connection: Connection, *, failing: bool = False) -> list[Settlement]:
        events, _ = outbox.claim(connection, owner="me", limit=BATCH, lease_seconds=60)
        if not failing:
            return [Settlement(event, 200) for event in events]
        rows = [event.outbox(max_retries=5) for event in events]
        for row in rows:
            row.fail("no")
            row.retry()
        return [Settlement(event, 500, row) for event, row in zip(events, rows, strict=True)]

    @property
    def night(self) -> Night:
        return Night(self.now, unchanged_before=self.now - 7 * DAY, aged_before=self.now - 40 * DAY)

    @cached_property
    def since(self) -> dict[str, Any]:
        return {"since": self.now - DAY}


Act = Callable[[Connection, Scene], object]


@dataclass(frozen=True)
class Statement:
    """An act of the code, and about how many rows it deals with: its cost may be some times that, and no more."""

    act: Act
    looks: int
    # Where the rows are the same by any way, and only the pages tell.
    pages: int | None = None


def _absorb(c: Connection, s: Scene) -> None:
    known = products.lock(c, READY, s.items)
    products.absorb(c, [AbsorbedProduct(one, "{}", s.raw_ids[0], "{}", "{}", "new") for one in known.values()])


def _settle_failing(c: Connection, s: Scene) -> None:
    settled = s.settlements(c, failing=True)
    settle(c, settled)
    failing = outbox.Wanted(0, BATCH)
    outbox.claim(c, owner="me", limit=BATCH, lease_seconds=60, wanted=failing)


def _resend(c: Connection, s: Scene) -> None:
    beliefs = reconciliation.beliefs(c, SellerId("seller 2"), None, BATCH)
    resend(c, SellerId("seller 2"), [Correction(one, 0) for one in beliefs], s.now)


def _judge(c: Connection, s: Scene) -> None:
    suspects = spot_checks.suspects(c, 10)
    spot_checks.judge(c, [(one, Sample(one.product, TruthVerdict.EQUAL)) for one in suspects], s.now)


def _tell(c: Connection, s: Scene) -> None:
    notices = alerts.claim(c, owner="me", limit=10, lease_seconds=60, now=s.now)
    alerts.settle(c, [alerts.Notified(one, {}, heard=True, again_at=None, error=None) for one in notices])


def _draw(c: Connection, s: Scene) -> None:
    spot_checks.add(c, [Sample(one, TruthVerdict.EQUAL) for one in spot_checks.draw(c, 10)], s.now)


def _sight(c: Connection, s: Scene) -> None:
    products.sight(c, READY, s.home.execution_id, dict.fromkeys(s.items, s.now))


def _book(c: Connection, s: Scene) -> None:
    epoch = c.execute(text("UPDATE pool_state SET counter = 'postgres' RETURNING epoch")).scalar_one()
    c.execute(text("UPDATE agent_limits SET next_free_at = now() - interval '1 hour'"))
    agent_bookings.book(c, uuid4(), LIMITS, hold=10, epoch=epoch)


def _record_booking(c: Connection, s: Scene) -> None:
    c.execute(text("UPDATE pool_state SET counter = 'postgres'"))
    booked = BookingRecord(uuid4(), s.agents[0], 1.0, 10.0, 0.5, throttled=False, fresh=True)
    agent_bookings.record(c, [booked], LIMITS)


TERMS = Terms(
    allowance=BATCH,
    price=1e-6,
    kept_age=24.0,
    promise_broken=True,
    look_hours=1.0,
    promise_rate=100.0,
    min_chance=0.01,
)
POOL = PoolTerms(
    price=1e-6,
    kept_age=24.0,
    promise_broken=False,
    freshness=1.0,
    requests_per_hour=4000.0,
    needed_per_hour=2000.0,
    sources=64_000.0,
    judged_at=utc_now(),
)


def _learn(c: Connection, s: Scene) -> None:
    fetched = [Fetched(READY, item, kind, s.now, changed=True) for item in s.items for kind in TYPES]
    learn(c, fetched, [(WAITING, item) for item in s.items])


def _choose(c: Connection, s: Scene) -> None:
    list(Chooser(c, READY, TERMS, s.now).choose(s.nearly_done.execution_id))


def _light(c: Connection, s: Scene) -> None:
    recrawl_terms.light_candidates(c, POOL, page_size=500, busy=["x"], now=s.now, limit=4)


def _least_fresh(c: Connection, s: Scene) -> None:
    found = budget.classes(c)
    budget.least_fresh(c, found, [0.5] * recrawl_terms.RATE_STEPS * len(found), 10)


def _drift(c: Connection, s: Scene) -> None:
    seen = Deviation("field 7", DriftKind.NEW, "nothing", "text", "x")
    record_drift(c, [Sighting(WAITING, 1, s.home.execution_id, seen)])


def _examine_again(c: Connection, s: Scene) -> None:
    sellers = retention.sellers_to_examine(c, s.night)
    retention.record_examined(c, sellers, s.night)
    assert retention.sellers_to_examine(c, s.night) == []


def _enqueue(c: Connection, s: Scene) -> None:
    outbox.enqueue(c, [ProductOutbox.announcing(one.product, one.life_cycle, s.now) for one in s.versions(c)])


def _schedule_changed(c: Connection, s: Scene) -> None:
    registry.change_interval(Within(c), SellerId("seller 2"), CrawlingInterval(2, IntervalUnit.DAYS), s.now)


def _schedule_refused(c: Connection, s: Scene) -> None:
    change = scheduler_outbox.claim(c, owner="me", lease_seconds=60, max_retries=0)
    assert change is not None
    change.outbox.fail("no")
    scheduler_outbox.settle(c, change, 0.0)


def _changes_behind(wanted: ChangeFilter) -> Act:
    def act(c: Connection, s: Scene) -> object:
        [last] = history.search_changes(c, wanted, behind=None, limit=1).rows or [None]
        behind = ChangeKey(s.now, UUID(int=0)) if last is None else ChangeKey(last.detected_at, last.id)
        return history.search_changes(c, wanted, behind=behind, limit=20)

    return act


def _events_behind(seller: str | None) -> Act:
    def act(c: Connection, s: Scene) -> object:
        seller_id = None if seller is None else SellerId(seller)
        return outbox_list.newest(c, status=None, seller_id=seller_id, limit=20, behind=OutboxKey(s.now, UUID(int=0)))

    return act


def _find(seller: str | None, words: str | None) -> Act:
    def act(c: Connection, s: Scene) -> object:
        seller_id = None if seller is None else SellerId(seller)
        behind = ProductKey(READY, s.items[0])
        return product_list.find(c, seller_id=seller_id, words=words, behind=behind, limit=20)

    return act


def _found(seller: str | None, words: str | None) -> Statement:
    return Statement(_find(seller, words), 40)


def _audited(**wanted: Any) -> Statement:
    return Statement(lambda c, s: audit_log.newest(c, AuditFilter(**wanted), limit=20, before_id=15_000), BATCH)


def _aged(aged: Aged, days: float, pages: int | None = None) -> dict[str, Statement]:
    return {
        f"old rows of {aged.table}": Statement(lambda c, s: count_aged(c, aged, s.now - days * DAY), 10 * BATCH, pages),
        f"old rows of {aged.table} removed": Statement(
            lambda c, s: delete_aged(Within(c), aged, s.now - days * DAY, 200), 10 * BATCH
        ),
    }


# About the rows that a seller, a batch or a screen has. Of one seller 1,000 products, 2,000 bodies and tasks.
SELLER, OF_EACH = NEW_PRODUCTS, SELLERS + 2
STATEMENTS: dict[str, Statement] = {
    # Bodies.
    "bodies taken back": Statement(lambda c, s: raw.take_back(c, s.late), BATCH),
    "whether bodies wait": Statement(lambda c, s: raw.any_pending(c, WAITING), 5),
    "next bodies": Statement(
        lambda c, s: raw.pending(c, WAITING, pages=2, products=BATCH, beside=s.raw_ids), 2 * BATCH
    ),
    "bodies still next": Statement(lambda c, s: raw.still_next(c, WAITING, dict.fromkeys(s.raw_ids, 0)), BATCH),
    "bodies processed": Statement(lambda c, s: raw.mark_processed(c, s.raw_ids), BATCH),
    "bodies that failed": Statement(
        lambda c, s: raw.mark_failed(c, [RawFailure(one, "C", "r") for one in s.raw_ids]), BATCH
    ),
    "unchanged bodies": Statement(lambda c, s: raw.settle_unchanged(c, WAITING, batch=BATCH), 2 * BATCH),
    "failed bodies again": Statement(lambda c, s: raw.retry_failed(c, READY, attempts=3), SELLER // 2),
    "failed bodies by hand": Statement(lambda c, s: raw.replay_failed(c, READY, s.now - DAY, s.now), SELLER // 2),
    "bodies read anew": Statement(lambda c, s: raw.reopen_newest(c, WAITING), 2 * SELLER),
    "newest bodies": Statement(
        lambda c, s: raw.newest(c, status=None, seller_id=None, since=None, limit=20), 2 * SELLER
    ),
    "newest bodies of one": Statement(
        lambda c, s: raw.newest(c, status=None, seller_id=s.waiting, since=s.now - DAY, limit=20), 2 * SELLER
    ),
    **{
        f"newest {status.value} bodies": Statement(
            lambda c, s, status=status: raw.newest(c, status=status, seller_id=None, since=None, limit=20), 3 * BATCH
        )
        for status in RawStatus
    },
    "failed bodies counted": Statement(lambda c, s: raw.count_failed(c, None, None, None), SELLER),
    # Products and their versions.
    "seen products": Statement(_sight, BATCH),
    "seen products counted": Statement(lambda c, s: products.count_seen(c, READY, s.home.execution_id), SELLER),
    "known products": Statement(lambda c, s: list(products.known_items(c, READY, limit=None)), SELLER),
    "foreign products": Statement(lambda c, s: products.set_foreign(c, READY, s.items, s.now), BATCH),
    "locked products": Statement(lambda c, s: products.lock(c, READY, s.items), BATCH),
    "all products of a seller locked": Statement(lambda c, s: products.lock_all(c, READY), SELLER),
    "products as they are": Statement(lambda c, s: products.find_known(c, READY, s.items), BATCH),
    "contents": Statement(lambda c, s: products.contents(c, READY, s.items), BATCH),
    "absorbed products": Statement(_absorb, BATCH),
    "unpublished products": Statement(lambda c, s: publication.unpublished(c, READY, BATCH), BATCH),
    "unpublished products that wait": Statement(lambda c, s: publication.unpublished(c, WAITING, BATCH), BATCH),
    "versions": Statement(lambda c, s: publication.publish(c, READY, s.home.execution_id, s.versions(c)), BATCH),
    "suspicious changes": Statement(lambda c, s: change_holds.suspicious(c, READY, 3), SELLER),
    "looked at": Statement(lambda c, s: change_holds.among_all(c, WAITING, Suspicion(1, 1, 1, 0)), SELLER),
    "crawl under way": Statement(lambda c, s: change_holds.crawl_under_way(c, WAITING), DAYS),
    "hold closed": Statement(lambda c, s: change_holds.close(c, WAITING, s.now), DAYS),
    "held deletions": Statement(lambda c, s: deletions.still_absent(c, s.hold), BATCH),
    "deletions of several holds": Statement(lambda c, s: deletions.count_still_absent(c, [s.hold]), BATCH),
    "names": Statement(lambda c, s: deletions.names(c, s.ready, s.items), BATCH),
    "absent from a sweep": Statement(lambda c, s: deletions.absence(c, READY, uuid4(), s.now), SELLER),
    "absences": Statement(lambda c, s: deletions.count_missed(c, READY, s.items), BATCH),
    "deletions held": Statement(
        lambda c, s: deletions.hold(c, READY, s.home.execution_id, deletions.Absence(1, s.items, [])), BATCH
    ),
    "sightings": Statement(lambda c, s: products.sightings(c, READY, s.home.execution_id, s.now - DAY), SELLER),
    "fingerprints": Statement(lambda c, s: products.fingerprints(c, WAITING), 2 * SELLER),
    # History.
    "product by its number": Statement(lambda c, s: history.products(c, ItemNo(s.items[0]), None), 5, pages=20),
    "versions of a product": Statement(lambda c, s: history.versions(c, READY, s.items[0], limit=20), 5),
    "a version": Statement(lambda c, s: history.version(c, READY, s.items[0], 1), 5),
    "changes": Statement(lambda c, s: history.changes(c, ChangeFilter(), 20), 20),
    "changes where nothing has changed": Statement(
        lambda c, s: history.changes(c, ChangeFilter(since=s.now + HOUR), 20), 5
    ),
    "changes of one": Statement(
        lambda c, s: history.changes(c, ChangeFilter(s.ready, s.now - DAY, kind=ChangeKind.parse("PRICE")), 20),
        SELLER,
    ),
    "changes behind a place": Statement(_changes_behind(ChangeFilter()), 20),
    "changes of one behind a place": Statement(_changes_behind(ChangeFilter(SellerId(READY))), 20),
    "changes of a rare type": Statement(
        _changes_behind(ChangeFilter(kind=ChangeKind.parse("PRICE"))), history.MOST_WALKED
    ),
    "products": _found(None, None),
    "products of one": _found(READY, None),
    "products of a number": _found(None, "20000007"),
    "products of one by the first digits of a number": _found(READY, "2000"),
    "products of one by name": Statement(_find(READY, "name"), product_list.MOST_WALKED),
    "products counted": Statement(lambda c, s: product_list.count(c, None), product_list.MOST_COUNTED),
    "products of one counted": Statement(lambda c, s: product_list.count(c, s.ready), product_list.MOST_COUNTED),
    "largest changes": Statement(lambda c, s: history.largest_changes(c, s.home.execution_id, 10), 5),
    "changes by type": Statement(lambda c, s: executions.changes_by_type(c, s.home.execution_id), 5),
    # Tasks.
    "tasks planned": Statement(lambda c, s: tasks.add(c, s.home, s.planned), BATCH),
    "tasks cancelled": Statement(lambda c, s: tasks.cancel_open(c, s.home), 2 * SELLER),
    "claim": Statement(lambda c, s: s.leased(c), BATCH),
    "claim of any crawl": Statement(
        lambda c, s: leases.claim_any(c, owner="me", limit=BATCH, lease_seconds=30, max_retries=2, max_releases=5),
        2 * BATCH,
    ),
    "claim without pages": Statement(
        lambda c, s: leases.claim_any(
            c, owner="me", limit=BATCH, pages=0, lease_seconds=30, max_retries=2, max_releases=5
        ),
        2 * BATCH,
    ),
    "claim of these": Statement(
        lambda c, s: leases.claim_these(c, s.task_ids, owner="me", lease_seconds=30, max_retries=2, max_releases=5),
        3 * BATCH,
    ),
    "messages to send": Statement(lambda c, s: s.unsent(c), 6 * BATCH),
    "messages to send without pages": Statement(
        lambda c, s: messages.waiting(c, limit=BATCH, pages=0, most=160), 6 * BATCH
    ),
    "messages to send of one": Statement(
        lambda c, s: messages.waiting(
            c, limit=BATCH, pages=BATCH, most=160, execution_id=s.home.execution_id, types=TYPES
        ),
        6 * BATCH,
    ),
    "messages sent and received": Statement(lambda c, s: messages.publish(c, s.unsent(c), s.task_ids), 6 * BATCH),
    "messages withdrawn": Statement(lambda c, s: messages.withdraw(c, [(one, 0) for one in s.task_ids]), 3 * BATCH),
    # While PostgreSQL carries the tasks, all of them are published and none is lost.
    "messages lost": Statement(lambda c, s: messages.withdraw_lost(c, seconds=90, limit=500), 2 * SELLER),
    "tasks adopted": Statement(lambda c, s: messages.adopt(c, limit=BATCH), 3 * BATCH),
    "tasks of messages": Statement(lambda c, s: messages.states(c, s.task_ids, max_retries=2), 3 * BATCH),
    # At worst each task of a batch is compared with each.
    "heartbeat": Statement(lambda c, s: leases.heartbeat(c, s.leased(c), 30), 10 * BATCH),
    "tasks handed back": Statement(lambda c, s: leases.hand_back(c, s.leased(c)), 10 * BATCH),
    "tasks written back": Statement(lambda c, s: leases.save(c, s.completed(c)), 10 * BATCH),
    "expired leases": Statement(lambda c, s: leases.take_expired(c, limit=500, max_retries=2), BATCH),
    "expired leases of one": Statement(
        lambda c, s: leases.take_expired(c, limit=500, max_retries=2, execution_id=s.home.execution_id), BATCH
    ),
    "open work": Statement(lambda c, s: tasks.open_work(c, s.home, TYPES), 2 * SELLER),
    "standings": Statement(lambda c, s: tasks.standings(c, s.home, recent_seconds=60, window_seconds=3600), 2 * SELLER),
    "listing pages": Statement(lambda c, s: tasks.page_outcomes(c, s.home), 2 * SELLER),
    "failures by reason": Statement(lambda c, s: executions.failures_by_reason(c, s.stored), 2 * SELLER),
    "open crawls of a month": Statement(lambda c, s: task_months.open_executions(c, MONTH), BATCH),
    # Dropping a month goes through all executions, once a month.
    "month dropped": Statement(lambda c, s: task_months.drop_month(c, OLD_MONTH), SELLERS * DAYS),
    # The recrawl policy: of a batch, of a seller, and of all sellers together.
    "lessons": Statement(_learn, 4 * BATCH),
    "what a crawl fetches": Statement(_choose, 4 * SELLER),
    "what a crawl fetches at once": Statement(
        lambda c, s: Chooser(c, READY, TERMS, s.now).choose_at_once(s.items), 4 * BATCH
    ),
    "why a crawl would fetch": Statement(lambda c, s: Chooser(c, READY, TERMS, s.now).reasons(), 4 * SELLER),
    "sweep remembered": Statement(lambda c, s: recrawl_terms.swept(c, READY, s.now), 3 * SELLER),
    "oldest source": Statement(lambda c, s: recrawl_terms.ended(c, READY), 2 * SELLER),
    "last look": Statement(lambda c, s: recrawl_terms.look_of(c, READY), 5),
    "all sources": Statement(lambda c, s: recrawl_terms.crowd(c), 20 * OF_EACH),
    "requests that wait": Statement(lambda c, s: recrawl_terms.backlog(c), OF_EACH),
    "light crawls": Statement(_light, 8 * OF_EACH),
    "oldest sellers": Statement(lambda c, s: budget.oldest(c, 10), 4 * OF_EACH),
    "looks at sellers": Statement(lambda c, s: budget.looks(c, 500), 4 * OF_EACH),
    "least fresh sellers": Statement(_least_fresh, 20 * OF_EACH),
    "sellers of a budget": Statement(lambda c, s: budget.profiles(c, [READY, WAITING], s.now, 500), 10),
    "requests of crawls": Statement(lambda c, s: budget.spent(c, s.now - DAY), 4 * SELLER),
    "crawl that light ones give way to": Statement(lambda c, s: executions.is_due_open(c), OF_EACH),
    "light crawl that is due": Statement(lambda c, s: executions.make_due(c, ExecutionId(s.home.execution_id)), 5),
    # Executions.
    "execution": Statement(lambda c, s: executions.get(c, s.stored.execution.id, lock=True), 5),
    "execution by its first digits": Statement(lambda c, s: executions.find(c, IdPrefix(str(s.home.execution_id))), 5),
    "executions": Statement(lambda c, s: executions.lock_all(c, [s.home.execution_id, uuid4()]), 5),
    "open execution": Statement(lambda c, s: executions.find_open(c, s.waiting, lock=True), DAYS),
    "open execution as it is": Statement(lambda c, s: executions.find_open(c, s.waiting), DAYS),
    "an execution as it is": Statement(lambda c, s: executions.get(c, ExecutionId(s.home.execution_id)), 5),
    "publishing execution": Statement(lambda c, s: publication.publishing_execution(c, SellerId("seller 2")), DAYS),
    "latest execution": Statement(lambda c, s: executions.find_latest(c, SellerId("seller 2")), DAYS),
    "newest executions": Statement(lambda c, s: executions.newest(c, None, 20), BATCH),
    "newest executions of one": Statement(lambda c, s: executions.newest(c, SellerId("seller 2"), 20), DAYS),
    "failed executions of one": Statement(
        lambda c, s: executions.newest(c, SellerId("seller 2"), 20, status=ExecutionStatus.FAILED), DAYS
    ),
    "newest executions that follow": Statement(
        lambda c, s: executions.newest(c, None, 20, before=s.home.execution_id), BATCH
    ),
    "whether any crawl has completed": Statement(lambda c, s: executions.has_any_completed(c), BATCH),
    "open executions": Statement(lambda c, s: executions.newest(c, None, 20, status=ExecutionStatus.RUNNING), SELLERS),
    "open executions that follow": Statement(
        lambda c, s: executions.newest(c, None, 20, status=ExecutionStatus.RUNNING, before=s.home.execution_id), SELLERS
    ),
    "failed executions": Statement(
        lambda c, s: executions.newest(c, None, 20, status=ExecutionStatus.FAILED, before=s.home.execution_id), BATCH
    ),
    "watched executions": Statement(lambda c, s: executions.find_all(c, [s.home.execution_id, uuid4()]), 5),
    "execution written back": Statement(lambda c, s: executions.save(c, s.stored.execution), 5),
    "requests counted": Statement(
        lambda c, s: executions.count_requests(c, s.home.execution_id, requests=1, throttled=0), 5
    ),
    "listed products": Statement(lambda c, s: executions.raise_listed(c, s.home.execution_id, 5), 5),
    "skipped items": Statement(lambda c, s: executions.count_skipped(c, s.home.execution_id, 5), 5),
    "foreign items": Statement(lambda c, s: executions.count_foreign(c, s.home), 5),
    "complete products": Statement(lambda c, s: executions.count_complete(c, s.home), 2 * SELLER),
    "sweep": Statement(lambda c, s: executions.set_sweep(c, s.home.execution_id, SweepStatus.COMPLETE), 5),
    "slices": Statement(lambda c, s: executions.begin_slices(c, [s.home.execution_id]), 5),
    "slices recorded": Statement(lambda c, s: slices.record(c, s.ended), BATCH),
    "newest slices": Statement(lambda c, s: slices.newest(c, [s.home.execution_id, uuid4()], 5), 10),
    "slices that are known": Statement(lambda c, s: slices.recorded(c, [one.run_id for one in s.ended]), BATCH),
    "slices that were halted": Statement(lambda c, s: slices.halted(c, [one.run_id for one in s.ended]), BATCH),
    "drift of a crawl": Statement(_drift, BATCH),
    # Events.
    "events": Statement(_enqueue, 2 * BATCH),
    "event claim": Statement(lambda c, s: outbox.claim(c, owner="me", limit=BATCH, lease_seconds=60), 2 * BATCH),
    "event claim from the other end": Statement(
        lambda c, s: outbox.claim(
            c,
            owner="me",
            limit=BATCH,
            lease_seconds=60,
            wanted=outbox.Wanted(BATCH, BATCH, outbox.First.NEWEST),
        ),
        2 * BATCH,
    ),
    "event claim on trial": Statement(
        lambda c, s: outbox.claim(c, owner="me", limit=1, lease_seconds=60, wanted=outbox.FOR_TRIAL), 2 * BATCH
    ),
    "events settled": Statement(lambda c, s: settle(c, s.settlements(c)), 2 * BATCH),
    "failing events": Statement(_settle_failing, 3 * BATCH),
    "silent senders": Statement(lambda c, s: outbox.release_expired(c), BATCH),
    "event counts": Statement(lambda c, s: outbox.counts(c), 2 * SELLER),
    "unsent events counted": Statement(lambda c, s: outbox.unsent(c), 2 * SELLER),
    "next event": Statement(lambda c, s: outbox.next_due_in(c), BATCH),
    "deliveries of sellers": Statement(lambda c, s: deliveries.seller_deliveries(c, [READY], s.now - DAY), 4 * SELLER),
    "newest events": Statement(lambda c, s: outbox_list.newest(c, status=None, seller_id=None, limit=20), BATCH),
    "failed events": Statement(
        lambda c, s: outbox_list.newest(c, status=OutboxStatus.FAILED, seller_id=None, limit=20), BATCH
    ),
    "events of one": Statement(lambda c, s: outbox_list.newest(c, status=None, seller_id=s.ready, limit=20), BATCH),
    "event by its first digits": Statement(lambda c, s: outbox_list.find(c, IdPrefix(str(s.outbox_id))), 5),
    "events behind a place": Statement(_events_behind(None), BATCH),
    "events of one behind a place": Statement(_events_behind(READY), BATCH),
    "failed events before a retry": Statement(lambda c, s: outbox_list.count_failed(c, None), BATCH),
    "failed events of one before a retry": Statement(lambda c, s: outbox_list.count_failed(c, s.ready), BATCH),
    "events of one retried": Statement(
        lambda c, s: outbox_list.retry_all(c, status=OutboxStatus.FAILED, seller_id=s.ready), BATCH
    ),
    "event retried": Statement(lambda c, s: outbox_list.retry_one(c, IdPrefix(str(s.failed_id))), 5),
    "events retried": Statement(
        lambda c, s: outbox_list.retry_all(c, status=OutboxStatus.FAILED, seller_id=None), BATCH
    ),
    # Changes of schedules: a seller's two at most are not sent.
    "schedule changed": Statement(_schedule_changed, BATCH),
    "schedule changes replaced": Statement(lambda c, s: scheduler_outbox.supersede(c), 2 * OF_EACH),
    "schedule change refused": Statement(_schedule_refused, 2 * OF_EACH),
    "silent senders of schedule changes": Statement(lambda c, s: scheduler_outbox.release_expired(c), OF_EACH),
    "next schedule change": Statement(lambda c, s: scheduler_outbox.next_due_in(c), OF_EACH),
    "schedule changes counted": Statement(lambda c, s: scheduler_outbox.counts(c), OF_EACH),
    # Comparing all products counts all products.
    "products to compare": Statement(lambda c, s: reconciliation.count(c, s.ready), SELLER),
    "all products to compare": Statement(lambda c, s: reconciliation.count(c, None), SELLERS * PRODUCTS),
    "beliefs": Statement(lambda c, s: reconciliation.beliefs(c, None, None, BATCH), 4 * BATCH),
    "states sent again": Statement(_resend, 4 * BATCH),
    # What is next, and what was left behind.
    "next sellers": Statement(lambda c, s: next_sellers.next_sellers(c, 4, busy=["x"], slice_seconds=600), BATCH),
    "sellers that wait": Statement(lambda c, s: next_sellers.count_next_sellers(c, busy=["x"]), BATCH),
    "stuck": Statement(lambda c, s: stuck.counts(c, s.now), BATCH),
    "unended": Statement(lambda c, s: stuck.unended(c, 60), BATCH),
    "unprocessed": Statement(lambda c, s: stuck.unprocessed(c, 60), 2 * BATCH),
    "begun": Statement(lambda c, s: slices.begun(c), BATCH),
    "stale sellers": Statement(
        lambda c, s: refreshes.stale(c, s.now, 7 * DAY, everything=False, busy=["x"]), OF_EACH * DAYS
    ),
    # Sellers, each with its products counted from an index alone.
    "overview": Statement(lambda c, s: sellers.overview(c), 3000, pages=400),
    "overview of one": Statement(lambda c, s: sellers.overview(c, seller_id=s.ready), SELLER),
    "catalogue at a time": Statement(lambda c, s: next(catalog_states.product_states(c, s.now - DAY)), ALL_PRODUCTS),
    "catalogue counted": Statement(lambda c, s: catalog_states.count_states(c, s.now - DAY), ALL_PRODUCTS),
    "changes of a day": Statement(lambda c, s: list(field_changes.field_changes(c, s.now - 2 * DAY, s.now - DAY)), 20),
    "changes of a day counted": Statement(
        lambda c, s: field_changes.count_changes(c, s.now - 2 * DAY, s.now - DAY), 20
    ),
    "metrics of a day": Statement(lambda c, s: metrics.seller_days(c, s.now - 2 * DAY, s.now - DAY), 6000),
    "metrics of one": Statement(lambda c, s: metrics.seller_days(c, s.now - DAY, s.now, READY), 2 * SELLER),
    "days that went on": Statement(
        lambda c, s: metrics.days_moved_since(c, s.now - DAY, horizon=s.now - 8 * DAY, zone="Asia/Seoul"),
        8 * OF_EACH,
    ),
    "outcomes": Statement(lambda c, s: criteria.outcomes(c, s.now - DAY), OF_EACH),
    "completeness": Statement(lambda c, s: criteria.completeness(c, s.now - DAY, 20), OF_EACH),
    "delivered in time": Statement(lambda c, s: criteria.deliveries(c, s.now - DAY, s.now, 24), 4 * SELLER),
    "throughput": Statement(lambda c, s: criteria.throughput(c, s.now - DAY), 2 * SELLER),
    "jumps": Statement(lambda c, s: criteria.jumps(c, s.now - DAY, 3), 2 * SELLER),
    "gaps": Statement(lambda c, s: criteria.gaps(c, s.now - DAY), 20 * OF_EACH),
    "verdicts": Statement(lambda c, s: criteria.verdicts(c, s.now - 7 * DAY), 2 * BATCH),
    "sweeps": Statement(lambda c, s: health.sweeps(c, s.now - 31 * DAY), OF_EACH),
    "failed events counted": Statement(lambda c, s: health.failed_events(c), BATCH),
    "unsent events": Statement(lambda c, s: health.unsent_events(c), 4 * SELLER),
    "failing": Statement(lambda c, s: health.failing(c, s.now - 31 * DAY, 95, 20), OF_EACH * DAYS),
    "overdue": Statement(lambda c, s: health.overdue(c, s.now, 2, 20), 2 * OF_EACH),
    "alerts of inactive sellers": Statement(
        lambda c, s: health.alerts_of_inactive_sellers(c, "RUN_FAILED", "open "), 2 * BATCH
    ),
    # Metrics.
    "fetches counted": Statement(
        lambda c, s: tallies.add(c, Subject.FETCH, {("PRODUCT_DETAIL", "ok"): [0.1], ("MINISHOP", "ok"): [0.2]}), BATCH
    ),
    "all fetches": Statement(lambda c, s: tallies.totals(c, Subject.FETCH), BATCH),
    "fetches of a day": Statement(lambda c, s: tallies.hours(c, Subject.FETCH, s.now - DAY, s.now), BATCH),
    "schedules of all": Statement(lambda c, s: activity.schedules(c), 10 * SELLERS),
    "changes by hour": Statement(lambda c, s: activity.changes_by_hour(c, s.now - DAY), 10 * SELLER),
    **{
        f"whether {part.value} have moved": Statement(lambda c, s, part=part: activity.marks(c, [part]), 3 * SELLER)
        for part in Moving
        if part is not Moving.HOLDS
    },
    "whether sellers have moved": Statement(lambda c, s: activity.marks_of_sellers(c, [WAITING, "seller 2"]), BATCH),
    "bodies of a product": Statement(lambda c, s: raw.of_item(c, READY, s.items[0], 20), BATCH),
    "a body": Statement(lambda c, s: raw.show_body(c, s.raw_ids[0], 100), 5),
    "undelivered events": Statement(lambda c, s: exposition.outbox(c), 2 * SELLER),
    "due sellers": Statement(lambda c, s: exposition.due_sellers(c), BATCH),
    "open crawls": Statement(lambda c, s: exposition.open_executions(c), BATCH),
    "leased tasks": Statement(lambda c, s: exposition.leased_tasks(c), 2 * BATCH),
    # What is kept no longer.
    "sellers to examine": Statement(lambda c, s: retention.sellers_to_examine(c, s.night), 2 * OF_EACH),
    "sellers that were examined": Statement(_examine_again, 2 * OF_EACH),
    "expired bodies": Statement(lambda c, s: retention.expired_bodies(c, "seller 2", s.night), 2 * SELLER),
    "bodies removed": Statement(lambda c, s: list(retention.delete_bodies(Within(c), s.raw_ids, BATCH)), BATCH),
    # By the bookings of each agent it would be as few rows: there are 50 agents, and each is skipped to.
    **_aged(agent_bookings.AGED, 5.4 / 24, pages=40),
    **_aged(alerts.AGED, 13.85),
    **_aged(spot_checks.AGED, 832),
    **_aged(triggers.AGED, 13.85),
    # By the slices of each execution it would be as few rows too.
    **_aged(slices.AGED, 13.85, pages=60),
    **_aged(scheduler_outbox.AGED, 13.85),
    **_aged(audit_log.AGED, 13.85),
    **_aged(tokens.AGED, 13.85),
    **_aged(login_links.AGED, 13.85),
    **_aged(login_failures.AGED, 13.85),
    **_aged(tallies.AGED, 720),
    # What watches.
    "truth drawn": Statement(_draw, 4 * BATCH),
    "truth judged": Statement(_judge, 2 * BATCH),
    "truth known": Statement(lambda c, s: spot_checks.known(c, [Drawn(READY, item) for item in s.items]), BATCH),
    "truth of the inactive": Statement(lambda c, s: spot_checks.forget_inactive(c), BATCH),
    "truth that is wrong": Statement(lambda c, s: spot_checks.wrong(c, s.now - 7 * DAY, 20), 2 * BATCH),
    "alert seen": Statement(
        lambda c, s: alerts.see(c, [(Condition("run 7", "RUN_FAILED", "t", "d"), s.now)], s.now), 5
    ),
    "alert healed": Statement(
        lambda c, s: alerts.end_healed(c, [Outcome("run 7", "RUN_FAILED", s.now, None)], s.now), 5
    ),
    "open alerts locked": Statement(lambda c, s: alerts.lock_open(c), BATCH),
    "alerts unseen": Statement(lambda c, s: alerts.end_unseen(c, ["RUN_FAILED"], ["run 7"], s.now, s.now), BATCH),
    "alerts told": Statement(_tell, BATCH),
    "alerts without a recipient": Statement(lambda c, s: alerts.forget_ended(c), BATCH),
    "newest alerts": Statement(lambda c, s: alerts.newest(c, everything=True, limit=20), BATCH),
    "alerts behind a place": Statement(
        lambda c, s: alerts.listed(c, ended=True, limit=20, behind=AlertKey(s.now, UUID(int=0))), BATCH
    ),
    "open alerts behind a place": Statement(
        lambda c, s: alerts.listed(c, ended=False, limit=20, behind=AlertKey(s.now, UUID(int=0))), BATCH
    ),
    "open alerts": Statement(lambda c, s: alerts.open_alerts(c), BATCH),
    "parked messages": Statement(lambda c, s: triggers.parked(c), BATCH),
    "newest parked messages": Statement(lambda c, s: triggers.newest_parked(c, everything=False, limit=20), BATCH),
    "message parked": Statement(lambda c, s: triggers.park(c, "queue", "7", ParkReason.NOT_JSON, "x"), 5),
    "message taken": Statement(
        lambda c, s: triggers.record_opened(c, "queue", "7", ExecutionId(s.home.execution_id)), 5
    ),
    "messages dismissed": Statement(lambda c, s: triggers.dismiss(c, "parked 7", s.now), BATCH),
    # Logins and changes by people.
    "audit log": _audited(),
    "audit log of a thing": _audited(target="seller 7"),
    "audit log of an actor": _audited(actor="kim"),
    "audit log of an action": _audited(action="user.add"),
    "audit log of an hour": Statement(
        lambda c, s: audit_log.newest(c, AuditFilter(since=s.now - HOUR), limit=BATCH), BATCH
    ),
    "recent failed logins": Statement(lambda c, s: login_failures.recent(c, "kim", "127.0.0.1"), 2 * BATCH),
    "failed login": Statement(lambda c, s: login_failures.add(c, "kim", "127.0.0.1"), 5),
    "failed login taken back": Statement(lambda c, s: login_failures.take_back(c, "kim", "address 2"), 5),
    "login": Statement(lambda c, s: login_failures.clear(c, "kim", "address 2"), 5),
    "login by a link": Statement(lambda c, s: login_links.take(c, "7", b""), 5),
    "login link": Statement(lambda c, s: login_links.add(c, "new", b"", UserName("kim"), 600), 5),
    "token": Statement(lambda c, s: tokens.standing(c, uuid4(), "kim"), 5),
    "tokens of streams": Statement(
        lambda c, s: tokens.ended(c, [HeldToken(uuid4(), "kim", number) for number in range(BATCH)]), 3 * BATCH
    ),
    # Agents.
    "booking": Statement(_book, BATCH),
    "booking recorded": Statement(_record_booking, BATCH),
    "booking withdrawn": Statement(
        lambda c, s: agent_bookings.withdraw(c, s.booking_id, s.agents[0], LIMITS, pause=1), BATCH
    ),
    "bookings removed": Statement(lambda c, s: agent_bookings.remove(c, [s.booking_id]), 5),
    "bookings in the window": Statement(lambda c, s: agent_bookings.in_window(c, 3600), AGENTS * IN_WINDOW),
    "use of some agents": Statement(lambda c, s: agent_bookings.used_by(c, s.agents[:25], LIMITS), 25 * IN_WINDOW),
    "next free agent": Statement(lambda c, s: agent_bookings.next_free_at(c, LIMITS), AGENTS * 80),
    "agents freed": Statement(lambda c, s: agent_bookings.refree_all(c, LIMITS), AGENTS * 80 * 5),
    "bookings handed over": Statement(lambda c, s: agent_bookings.read_seed(c, LIMITS), AGENTS * IN_WINDOW),
    "bookings pruned": Statement(lambda c, s: agent_bookings.prune(c, 19000), 20 * BATCH),
    "good answers": Statement(lambda c, s: agent_pool.good_answers(c, s.now - HOUR), AGENTS * IN_WINDOW),
    "last good answer": Statement(lambda c, s: agent_pool.last_good_answer(c, s.now - HOUR), AGENTS * IN_WINDOW),
    "what agents have left": Statement(lambda c, s: agent_bookings.usable(c, LIMITS, s.now), AGENTS * IN_WINDOW),
}
