"""The deletion guard: a product is gone only when complete sweeps and its own detail page say so."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import structlog
from sqlalchemy import Connection

from mustit_pipeline.catalog.publishing import publish_versions
from mustit_pipeline.catalog.sql import deletions, products, publication, raw
from mustit_pipeline.catalog.sql.publication import NewVersion
from mustit_pipeline.domain.deletion import DeletionHold
from mustit_pipeline.domain.execution import CrawlingScheduleExecution
from mustit_pipeline.domain.filters import IdPrefix
from mustit_pipeline.domain.product import Product, absent_long_enough
from mustit_pipeline.domain.states import LifeCycle
from mustit_pipeline.domain.values import ExecutionId, SellerId
from mustit_pipeline.foundation.audited import State, Target
from mustit_pipeline.foundation.database import Database

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SweepJudgement:
    """The result of a complete sweep for the products that it did not see."""

    live: int
    absent: int
    held: bool
    candidates: list[int]


def judge_sweep(
    connection: Connection, execution: CrawlingScheduleExecution, *, listed: int, hold_share: float, sweeps: int
) -> SweepJudgement:
    """Count the absences of a complete sweep, or hold all of them back if they are too many to believe."""
    seller_id = execution.seller_id.value
    deletions.wait_for_decision(connection, seller_id)
    found = deletions.absence(connection, seller_id, execution.id.value, execution.created_at)
    absent = len(found.absent)
    vanished = listed == 0 and found.live > 0
    if vanished or (found.live and absent / found.live > hold_share):
        deletions.hold(connection, seller_id, execution.id.value, found)
        log.warning(
            "deletions held", seller_id=seller_id, execution_id=str(execution.id), absent=absent, live=found.live
        )
        return SweepJudgement(found.live, absent, held=True, candidates=[])
    deletions.close_hold(connection, seller_id)
    gone = [*found.absent, *found.absent_unpublished]
    missed = deletions.count_missed(connection, seller_id, gone) if gone else {}
    candidates = [item_no for item_no, times in missed.items() if absent_long_enough(times, sweeps)]
    return SweepJudgement(found.live, absent, held=False, candidates=candidates)


def delete_confirmed(
    connection: Connection, execution: CrawlingScheduleExecution, item_nos: Sequence[int], *, sweeps: int, at: datetime
) -> int:
    """Delete products that their detail page confirmed to be gone; returns how many were published before."""
    if not item_nos:
        return 0
    gone = list(products.lock(connection, execution.seller_id.value, item_nos).values())
    gone = [product for product in gone if product.is_deletion_candidate(sweeps)]
    published = [product for product in gone if product.delete(at, sweeps=sweeps)]
    _Deletion(execution.seller_id, execution.id, gone, published).store(connection, at)
    return len(published)


@dataclass(frozen=True, slots=True)
class Decision:
    """How a hold ended, and which products were deleted; its other products had been seen again."""

    hold: DeletionHold
    deleted: list[int]

    @property
    def seller_id(self) -> SellerId:
        return self.hold.seller_id

    @property
    def kept(self) -> int:
        """How many products of the hold stay."""
        return len(self.hold.item_nos) - len(self.deleted)


def approve(database: Database, wanted: IdPrefix, at: datetime) -> Decision:
    """Delete the hold's products that are still absent, with versions and events, in one transaction."""
    with database.transaction() as connection:
        found = deletions.find_hold(connection, wanted)
        seller_id = found.seller_id
        # Taken first, in the order of a processor: no processor publishes these products meanwhile.
        raw.lock_catalog(connection, seller_id.value)
        hold = deletions.lock_hold(connection, found.id)
        hold.approve(at)
        # Read after the products are locked: a transaction that records a sighting of one of them ends first.
        locked = products.lock(connection, seller_id.value, hold.item_nos)
        gone = [locked[item_no] for item_no in deletions.still_absent(connection, hold)]
        published = [product for product in gone if product.delete(at, approved=True)]
        _Deletion(seller_id, hold.execution_id, gone, published).store(connection, at)
        deletions.decide(connection, hold)
    deleted = [product.item_no.value for product in gone]
    log.info("held deletions approved", seller_id=seller_id.value, deleted=len(deleted), held=len(hold.item_nos))
    return Decision(hold, deleted)


def reject(database: Database, wanted: IdPrefix, at: datetime) -> Decision:
    """Close a hold and delete nothing; a sweep that still misses too many products opens the next hold."""
    with database.transaction() as connection:
        hold = deletions.lock_hold(connection, deletions.find_hold(connection, wanted).id)
        hold.reject(at)
        deletions.decide(connection, hold)
    return Decision(hold, [])


def target(hold_id: UUID) -> Target:
    """A hold as the audit log shows it."""

    def seen(connection: Connection) -> State:
        hold = deletions.find_hold(connection, IdPrefix(str(hold_id)))
        return {"sellerId": hold.seller_id.value, "status": hold.status.value, "heldCount": hold.held_count}

    return Target(f"deletion hold {hold_id}", seen)


@dataclass(frozen=True, slots=True)
class _Deletion:
    """Products that are gone, their seller, and the execution that found it."""

    seller_id: SellerId
    execution_id: ExecutionId
    gone: Sequence[Product]
    published: Sequence[Product]

    def store(self, connection: Connection, at: datetime) -> None:
        """Product, version, change set and outbox row, all in the caller's transaction."""
        versions = [NewVersion(product, LifeCycle.DELETED, [], [], None, None) for product in self.published]
        publication.store_states(connection, [(product, None) for product in self.gone])
        publish_versions(connection, self.seller_id, self.execution_id, versions, at)
