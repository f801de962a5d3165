"""The deletion guard: a product is gone only when complete sweeps and its own detail page say so."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog
from sqlalchemy import Connection

from mustit_pipeline.domain.states import LifeCycle
from mustit_pipeline.store import deletions, outbox, products
from mustit_pipeline.store.executions import StoredExecution
from mustit_pipeline.store.products import NewVersion

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SweepJudgement:
    """What a complete sweep says about products that it did not see."""

    live: int
    absent: int
    held: bool
    candidates: list[int]


def judge_sweep(connection: Connection, stored: StoredExecution, *, hold_share: float, sweeps: int) -> SweepJudgement:
    """Count the absences of a complete sweep, or hold them all back where they are too many to believe."""
    execution = stored.execution
    seller_id = execution.seller_id.value
    found = deletions.absence(connection, seller_id, execution.id.value, execution.created_at)
    absent = len(found.absent)
    vanished = stored.listed_count == 0 and found.live > 0
    if vanished or (found.live and absent / found.live > hold_share):
        deletions.hold(connection, seller_id, execution.id.value, found)
        log.warning("deletions held", seller_id=seller_id, absent=absent, live=found.live)
        return SweepJudgement(found.live, absent, held=True, candidates=[])
    deletions.close_hold(connection, seller_id)
    gone = [*found.absent, *found.absent_unpublished]
    missed = deletions.count_missed(connection, seller_id, gone) if gone else {}
    candidates = [item_no for item_no, times in missed.items() if times >= sweeps]
    return SweepJudgement(found.live, absent, held=False, candidates=candidates)


def delete_confirmed(
    connection: Connection, stored: StoredExecution, item_nos: Sequence[int], *, sweeps: int, at: datetime
) -> int:
    """Delete products that their detail page confirmed to be gone; returns how many were published before."""
    if not item_nos:
        return 0
    seller_id = stored.execution.seller_id
    gone = [entry.product for entry in products.lock(connection, seller_id.value, item_nos).values()]
    gone = [product for product in gone if product.is_deletion_candidate(sweeps)]
    published = [product for product in gone if product.delete(at, sweeps=sweeps)]
    versions = [NewVersion(product, LifeCycle.DELETED, [], [], None, None) for product in published]
    products.store_states(connection, [(product, None) for product in gone])
    products.publish(connection, seller_id.value, stored.execution.id.value, versions)
    outbox.enqueue(connection, seller_id, versions, at)
    return len(published)
