"""What can be done with a crawl as a whole: open, plan, pause, resume, cancel, end."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from mustit_pipeline.catalog.sql import raw
from mustit_pipeline.catalog.sql.drift import Sighting
from mustit_pipeline.crawling.drift import record_drift
from mustit_pipeline.crawling.sql import executions, task_months, tasks
from mustit_pipeline.crawling.sql.executions import StoredExecution
from mustit_pipeline.domain.drift import Deviation
from mustit_pipeline.domain.errors import Conflict
from mustit_pipeline.domain.execution import CrawlingScheduleExecution
from mustit_pipeline.domain.seller import Seller
from mustit_pipeline.domain.states import ExecutionStatus
from mustit_pipeline.domain.values import ExecutionId, SellerId
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.foundation.failures import FetchError
from mustit_pipeline.sellers import registry
from mustit_pipeline.sellers.sql import sellers


@dataclass(frozen=True, slots=True)
class Opened:
    """The seller's open execution, and whether it was there before."""

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

    One that does not look at the listing delays no sweep: the interval goes on, and what is due comes after it.
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
) -> Opened:
    """The same inside the caller's transaction; a refusal leaves nothing behind in it."""
    seller, schedule = sellers.get(connection, seller_id, lock=True)
    present = executions.find_open(connection, seller_id)
    if present is not None:
        return Opened(present, joined=True)
    _refuse_inactive(seller)
    if sweeps:
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
    )
    return Opened(stored, joined=False)


def would_join(connection: Connection, seller_id: SellerId) -> StoredExecution | None:
    """The open execution that a crawl would join, None where it would open one; refuses what it could not work on."""
    seller, _ = sellers.get(connection, seller_id)
    present = executions.find_open(connection, seller_id)
    if present is None:
        _refuse_inactive(seller)
        return None
    if present.status is ExecutionStatus.PAUSED:
        raise Conflict(
            "CONFLICT_EXECUTION_PAUSED",
            korean=f"일시정지된 실행입니다: {present.id}",
            english=f"The crawl is PAUSED: resume it with `mustit execution resume {present.id}`",
        )
    return present


def pause(database: Database, execution_id: ExecutionId) -> StoredExecution:
    """Let no further task of it be taken; those in flight end normally."""
    with database.transaction() as connection:
        stored = executions.get(connection, execution_id, lock=True)
        stored.execution.pause()
        executions.save(connection, stored.execution)
    return stored


def resume(database: Database, execution_id: ExecutionId) -> StoredExecution:
    """Go on with a paused or failed execution from what is stored."""
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
    """Crawl a seller no more; a crawl that is under way is cancelled."""
    with database.transaction() as connection:
        seller = registry.deactivate(connection, seller_id, now)
        present = executions.find_open(connection, seller_id, lock=True)
        if present is not None:
            cancel_locked(connection, present, now)
    return seller


def give_up(database: Database, execution_id: ExecutionId, code: str, reason: str, now: datetime) -> None:
    """Fail an execution that gets no further, with its reason; it can be resumed."""
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
    """Fail an execution without a plan; where trying again may help, its seller is due again after a back-off.

    The drift behind it is recorded. False where somebody else has made a plan meanwhile: that one goes on.
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
            record_drift(connection, [Sighting(home.seller_id, None, home.execution_id, one) for one in seen])
    return True


def complete_if_done(database: Database, execution_id: ExecutionId, now: datetime) -> StoredExecution:
    """Complete a running execution whose tasks have all ended; otherwise leave it to the next slice.

    So is one whose last bodies a worker stored after everybody had looked: once it is over nobody would come for them.
    """
    with database.transaction() as connection:
        stored = executions.get(connection, execution_id, lock=True)
        if stored.has_ended_work and not raw.any_pending(connection, stored.home.seller_id):
            stored.execution.complete(now)
            executions.save(connection, stored.execution)
    return stored


def find(database: Database, execution_id: ExecutionId) -> StoredExecution:
    """An execution as it is now."""
    with database.reading() as connection:
        return executions.get(connection, execution_id)


def _refuse_inactive(seller: Seller) -> None:
    if not seller.is_active:
        raise Conflict(
            "CONFLICT_SELLER_INACTIVE",
            korean=f"비활성 셀러는 크롤링하지 않습니다: {seller.seller_id}",
            english=f"The seller {seller.seller_id} is INACTIVE and is not crawled: "
            f"activate it with `mustit seller activate`",
        )
