"""Executions as a whole, steered: open, fail its plan, pause, resume, cancel, end."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from mustit_pipeline.catalog.sql import raw
from mustit_pipeline.catalog.sql.drift import Sighting
from mustit_pipeline.crawling.sql import executions, recrawl_terms, task_months, tasks
from mustit_pipeline.crawling.sql.executions import StoredExecution
from mustit_pipeline.domain.drift import Deviation
from mustit_pipeline.domain.errors import Conflict
from mustit_pipeline.domain.execution import CrawlingScheduleExecution
from mustit_pipeline.domain.seller import Seller
from mustit_pipeline.domain.states import ExecutionKind, ExecutionStatus
from mustit_pipeline.domain.values import ExecutionId, SellerId
from mustit_pipeline.foundation.audited import State, Target
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.foundation.failures import FetchError
from mustit_pipeline.sellers import registry
from mustit_pipeline.sellers.sql import sellers


@dataclass(frozen=True, slots=True)
class Opened:
    """The seller's open execution, and whether it existed before."""

    stored: StoredExecution
    joined: bool


def open_or_join(
    database: Database,
    seller_id: SellerId,
    *,
    triggered_by: str,
    now: datetime,
    full_refetch: bool = False,
    product_limit: int | None = None,
    sweeps: bool = True,
) -> Opened:
    """Open an execution for an active seller and restart its interval, or join the one that is open.

    An execution without a sweep (`sweeps=False`) does not restart the interval, so it delays no sweep. A light crawl
    that is joined is a light one no longer: it gives way to no other crawl. A full refetch takes its place, because
    what it has passed over already would not be fetched.
    """
    with database.transaction() as connection:
        return open_or_join_within(
            connection,
            seller_id,
            triggered_by=triggered_by,
            now=now,
            full_refetch=full_refetch,
            product_limit=product_limit,
            sweeps=sweeps,
        )


def open_or_join_within(
    connection: Connection,
    seller_id: SellerId,
    *,
    triggered_by: str,
    now: datetime,
    full_refetch: bool = False,
    product_limit: int | None = None,
    sweeps: bool = True,
    kind: ExecutionKind = ExecutionKind.DUE,
) -> Opened:
    """The same inside the caller's transaction; a refusal writes nothing."""
    seller, schedule = sellers.get(connection, seller_id, lock=True)
    present = executions.find_open(connection, seller_id)
    restarts = sweeps and kind is ExecutionKind.DUE
    if present is not None and present.is_light and full_refetch and present.status is not ExecutionStatus.PAUSED:
        present = executions.get(connection, present.id, lock=True)
        if present.is_open:
            cancel_locked(connection, present, now)
        present = None
    if present is not None and present.is_light and kind is ExecutionKind.DUE:
        # None where it has ended meanwhile.
        present = executions.make_due(connection, present.id)
        if present is not None and restarts:
            schedule.triggered(now)
            sellers.save(connection, seller, schedule)
    if present is not None:
        return Opened(present, joined=True)
    _refuse_inactive(seller)
    if restarts:
        schedule.triggered(now)
        sellers.save(connection, seller, schedule)
    task_months.ensure_month(connection, now.date().replace(day=1))
    execution = CrawlingScheduleExecution(id=ExecutionId.new(), seller_id=seller_id, created_at=now)
    stored = executions.add(
        connection,
        execution,
        schedule.id,
        triggered_by=triggered_by,
        full_refetch=full_refetch,
        product_limit=product_limit,
        kind=kind,
    )
    return Opened(stored, joined=False)


def trigger(
    database: Database, seller_id: SellerId, *, triggered_by: str, now: datetime, full_refetch: bool = False
) -> Opened:
    """Open or join for a caller that does not crawl itself: a paused execution, which no run continues, is refused."""
    with database.transaction() as connection:
        opened = open_or_join_within(
            connection, seller_id, triggered_by=triggered_by, now=now, full_refetch=full_refetch
        )
        _refuse_paused(opened.stored)
    return opened


def open_light(database: Database, seller_id: SellerId, now: datetime) -> StoredExecution | None:
    """Open a light crawl, which does not restart the seller's interval; None where a crawl of the seller is open."""
    with database.transaction() as connection:
        opened = open_or_join_within(
            connection, seller_id, triggered_by="spare requests", now=now, kind=ExecutionKind.LIGHT
        )
    return None if opened.joined else opened.stored


def would_join(connection: Connection, seller_id: SellerId) -> StoredExecution | None:
    """The open execution that a crawl would join, None if it would open one; raises what the crawl would raise."""
    seller, _ = sellers.get(connection, seller_id)
    present = executions.find_open(connection, seller_id)
    if present is None:
        _refuse_inactive(seller)
        return None
    _refuse_paused(present)
    return present


def pause(database: Database, execution_id: ExecutionId) -> StoredExecution:
    """Lease no further task of it; requests in flight end normally."""
    with database.transaction() as connection:
        stored = executions.get(connection, execution_id, lock=True)
        stored.execution.pause()
        executions.save(connection, stored.execution)
    return stored


def resume(database: Database, execution_id: ExecutionId) -> StoredExecution:
    """Continue a paused or failed execution with its stored tasks."""
    with database.transaction() as connection:
        stored = executions.get(connection, execution_id)
        seller, _ = sellers.get(connection, stored.seller_id, lock=True)
        _refuse_inactive(seller)
        stored = executions.get(connection, execution_id, lock=True)
        other = executions.find_open(connection, stored.seller_id)
        if other is not None and other.id != execution_id:
            raise Conflict(
                "CONFLICT_EXECUTION_OPEN",
                korean=f"이미 진행 중인 실행이 있습니다: {other.id}",
                english=f"Another crawl of this seller is open already: {other.id}",
            )
        stored.execution.resume()
        executions.save(connection, stored.execution)
    return stored


def cancel(database: Database, execution_id: ExecutionId, now: datetime) -> StoredExecution:
    """End an execution and its open tasks for good."""
    with database.transaction() as connection:
        stored = executions.get(connection, execution_id, lock=True)
        cancel_locked(connection, stored, now)
        return executions.get(connection, execution_id)


def cancel_locked(connection: Connection, stored: StoredExecution, now: datetime) -> None:
    """The same inside the caller's transaction, which holds the execution's lock."""
    stored.execution.cancel(now)
    tasks.cancel_open(connection, stored.home)
    executions.save(connection, stored.execution)


def deactivate_seller(database: Database, seller_id: SellerId, now: datetime) -> Seller:
    """Deactivate a seller and cancel its open execution."""
    with database.transaction() as connection:
        seller = registry.deactivate(connection, seller_id, now)
        present = executions.find_open(connection, seller_id, lock=True)
        if present is not None:
            cancel_locked(connection, present, now)
    return seller


def give_up(database: Database, execution_id: ExecutionId, code: str, reason: str, now: datetime) -> None:
    """Fail an execution that makes no progress, with the reason; it can be resumed."""
    with database.transaction() as connection:
        stored = executions.get(connection, execution_id, lock=True)
        if stored.is_open:
            stored.execution.fail(reason, now, code=code)
            executions.save(connection, stored.execution)


def fail_plan(
    database: Database,
    execution_id: ExecutionId,
    error: FetchError,
    now: datetime,
    *,
    base: float,
    longest: float,
    seen: Sequence[Deviation] = (),
) -> bool:
    """Fail an execution without a plan; if a retry may help, its seller is due again after a back-off.

    The drift in the answer is recorded. Returns False if another run has planned the execution meanwhile: it continues.
    """
    with database.transaction() as connection:
        seller_id = executions.get(connection, execution_id).seller_id
        seller, schedule = sellers.get(connection, seller_id, lock=True)
        stored = executions.get(connection, execution_id, lock=True)
        if stored.is_planned:
            return False
        if stored.is_open:
            stored.execution.fail(error.english, now, code=error.code)
            executions.save(connection, stored.execution)
            if error.transient:
                schedule.plan_failed(now, base=base, longest=longest)
            else:
                schedule.plan_settled()
            sellers.save(connection, seller, schedule)
            home = stored.home
            executions.record_drift(
                connection, [Sighting(home.seller_id, None, home.execution_id, one) for one in seen]
            )
    return True


def complete_if_done(database: Database, execution_id: ExecutionId, now: datetime) -> StoredExecution:
    """Complete a running execution whose tasks have all ended; otherwise leave it to the next slice.

    It also stays open while bodies wait, such as bodies that a worker stored after the last processing: no later slice
    would process them.
    """
    with database.transaction() as connection:
        stored = executions.get(connection, execution_id, lock=True)
        if stored.has_ended_work and not raw.any_pending(connection, stored.home.seller_id):
            stored.execution.complete(now)
            executions.save(connection, stored.execution)
            executions.count_complete(connection, stored.home)
            recrawl_terms.ended(connection, stored.home.seller_id)
    return stored


def find(database: Database, execution_id: ExecutionId) -> StoredExecution:
    """An execution as it is now."""
    with database.reading() as connection:
        return executions.get(connection, execution_id)


def target(execution_id: ExecutionId) -> Target:
    """An execution as the audit log shows it."""

    def seen(connection: Connection) -> State:
        return _shown(executions.get(connection, execution_id))

    return Target(f"execution {execution_id}", seen)


def target_of_trigger(seller_id: SellerId) -> Target:
    """A seller's open execution as the audit log shows it."""

    def seen(connection: Connection) -> State | None:
        present = executions.find_open(connection, seller_id)
        return None if present is None else _shown(present)

    return Target(f"seller {seller_id}", seen)


def _shown(stored: StoredExecution) -> State:
    return {
        "executionId": str(stored.id),
        "sellerId": stored.seller_id.value,
        "status": stored.status.value,
        "fullRefetch": stored.full_refetch,
    }


def _refuse_paused(stored: StoredExecution) -> None:
    if stored.status is ExecutionStatus.PAUSED:
        raise Conflict(
            "CONFLICT_EXECUTION_PAUSED",
            korean=f"일시정지된 실행입니다: {stored.id}",
            english=f"The crawl is PAUSED: resume it with `mustit execution resume {stored.id}`",
        )


def _refuse_inactive(seller: Seller) -> None:
    if not seller.is_active:
        raise Conflict(
            "CONFLICT_SELLER_INACTIVE",
            korean=f"비활성 셀러는 크롤링하지 않습니다: {seller.seller_id}",
            english=f"The seller {seller.seller_id} is INACTIVE and is not crawled: "
            f"activate it with `mustit seller activate`",
        )
