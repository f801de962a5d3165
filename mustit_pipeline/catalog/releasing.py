"""Release of held changes by an admin."""

from collections.abc import Callable
from datetime import datetime

from sqlalchemy import Connection

from mustit_pipeline.catalog.processing import USUAL_BATCH, ProcessingReport
from mustit_pipeline.catalog.publishing import publish_ready
from mustit_pipeline.catalog.sql import change_holds, products, publication, raw
from mustit_pipeline.domain.change_hold import ChangeHold
from mustit_pipeline.domain.errors import Conflict
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.audited import State, Target
from mustit_pipeline.foundation.database import Database


def release(
    database: Database,
    seller_id: SellerId,
    *,
    now: Callable[[], datetime],
    progress: Callable[[ProcessingReport], None] | None = None,
) -> ProcessingReport:
    """Publish the changes of a seller's hold, and nothing newer.

    All in one transaction under `lock_catalog`: no body of this seller is processed meanwhile, and the hold ends with
    its last version.
    """
    report = ProcessingReport()
    with database.transaction() as connection:
        raw.lock_catalog(connection, seller_id.value)
        hold = _open_hold(connection, seller_id)
        # All of them before the first version: the outbox rows of a batch come after the products of every batch.
        products.lock_all(connection, seller_id.value)
        hold.release(now())
        change_holds.release(connection, hold)
        while ready := publication.unpublished(connection, seller_id.value, USUAL_BATCH.versions):
            published = publish_ready(connection, seller_id, ready, now())
            if not published:
                break
            report.count_versions(published)
            if progress is not None:
                progress(report)
        # A crawl that was opened meanwhile has made products unready: not all of the hold was published.
        _refuse_crawl_under_way(connection, seller_id)
    return report


def target(seller_id: SellerId) -> Target:
    """The seller's open hold, or else its newest, as the audit log shows it."""

    def seen(connection: Connection) -> State | None:
        for hold in change_holds.newest(connection, status=None, seller_id=seller_id, limit=1).rows:
            return {"holdId": str(hold.id), "status": hold.status.value}
        return None

    return Target(f"change hold of {seller_id}", seen)


def _open_hold(connection: Connection, seller_id: SellerId) -> ChangeHold:
    hold = change_holds.find_open(connection, seller_id)
    _refuse_crawl_under_way(connection, seller_id)
    _refuse_waiting_bodies(connection, seller_id)
    return hold


def _refuse_crawl_under_way(connection: Connection, seller_id: SellerId) -> None:
    if change_holds.crawl_under_way(connection, seller_id.value):
        raise Conflict(
            "CONFLICT_CRAWL_UNDER_WAY",
            korean=f"크롤링이 진행 중인 셀러입니다: {seller_id}",
            english=f"A crawl of {seller_id} is under way, and what it has still to fetch would be held again: "
            "release it when that has ended, or cancel it with `mustit execution cancel`",
        )


def _refuse_waiting_bodies(connection: Connection, seller_id: SellerId) -> None:
    """While a listing page waits, no product is ready: nothing would be published, and the changes held again."""
    if raw.any_pending(connection, seller_id.value):
        raise Conflict(
            "CONFLICT_BODIES_WAIT",
            korean=f"아직 처리되지 않은 응답이 있는 셀러입니다: {seller_id}",
            english=f"Stored bodies of {seller_id} wait to be processed, and may say something else than what is held: "
            "release it when they have been, in about a minute or after `mustit recover`",
        )
