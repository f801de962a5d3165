"""Sellers and their schedules."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Row, func, insert, select, text, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.exc import IntegrityError

from mustit_pipeline.domain.errors import Conflict, NotFound
from mustit_pipeline.domain.schedule import CrawlingSchedule
from mustit_pipeline.domain.seller import Seller
from mustit_pipeline.domain.states import ScheduleStatus, SellerStatus
from mustit_pipeline.domain.values import CrawlingInterval, IntervalUnit, ScheduleId, SellerId
from mustit_pipeline.sellers.sql.tables import crawling_schedules, sellers


@dataclass(frozen=True, slots=True)
class SellerOverview:
    """A seller as lists show it."""

    seller: Seller
    next_due_at: datetime
    last_triggered_at: datetime | None
    complete_products: int

    @property
    def seller_id(self) -> str:
        return self.seller.seller_id.value

    @property
    def is_active(self) -> bool:
        return self.seller.is_active


@dataclass(frozen=True, slots=True)
class ScheduledSeller:
    """A seller and when it is crawled."""

    seller: Seller
    schedule_status: ScheduleStatus
    next_due_at: datetime
    last_triggered_at: datetime | None


# The interval of a row of `sellers s`.
INTERVAL = """CASE s.interval_unit WHEN 'DAYS' THEN make_interval(days => s.interval_amount)
                                   ELSE make_interval(hours => s.interval_amount) END"""

_JOINED = select(
    sellers,
    crawling_schedules.c.schedule_id,
    crawling_schedules.c.status.label("schedule_status"),
    crawling_schedules.c.next_due_at,
    crawling_schedules.c.last_triggered_at,
    crawling_schedules.c.failed_plans,
).join(crawling_schedules, crawling_schedules.c.seller_id == sellers.c.seller_id)

_OVERVIEW = text("""
    SELECT s.*, c.next_due_at, c.last_triggered_at,
           (SELECT count(*) FROM products p
            WHERE p.seller_id = s.seller_id AND p.complete AND p.deleted_at IS NULL) AS complete_products
    FROM sellers s JOIN crawling_schedules c USING (seller_id)
    WHERE (CAST(:status AS text) IS NULL OR s.status = :status)
      AND (CAST(:seller_id AS text) IS NULL OR s.seller_id = :seller_id)
    ORDER BY s.seller_id
""")

_FOUND = """
    FROM sellers s
    WHERE (CAST(:status AS text) IS NULL OR s.status = :status)
      AND (CAST(:pattern AS text) IS NULL OR s.seller_id ILIKE :pattern OR s.name ILIKE :pattern)
"""
_COUNT_FOUND = text(f"SELECT count(*) {_FOUND}")
_PAGE = text(f"""
    SELECT s.*, c.status AS schedule_status, c.next_due_at, c.last_triggered_at
    FROM (SELECT s.* {_FOUND} ORDER BY s.seller_id LIMIT :size OFFSET :first) s
    JOIN crawling_schedules c USING (seller_id) ORDER BY s.seller_id
""")


def add(connection: Connection, seller: Seller, schedule: CrawlingSchedule) -> None:
    """Store a new seller with its schedule; raises Conflict for a known id."""
    try:
        with connection.begin_nested():
            connection.execute(insert(sellers).values(seller_id=seller.seller_id.value, **_seller_values(seller)))
    except IntegrityError:
        raise Conflict(
            "CONFLICT_SELLER_EXISTS",
            korean=f"이미 등록된 셀러입니다: {seller.seller_id}",
            english=f"The seller {seller.seller_id} is registered already",
        ) from None
    connection.execute(insert(crawling_schedules), [_schedule_row(schedule)])


def add_new(connection: Connection, entries: Sequence[tuple[Seller, CrawlingSchedule]]) -> list[str]:
    """Store the sellers that are not known yet, with their schedules; returns their ids."""
    if not entries:
        return []
    rows = [{"seller_id": seller.seller_id.value, **_seller_values(seller)} for seller, _ in entries]
    query = upsert(sellers).on_conflict_do_nothing().returning(sellers.c.seller_id)
    added = set(connection.execute(query, rows).scalars())
    new = [schedule for _, schedule in entries if schedule.seller_id.value in added]
    if new:
        connection.execute(insert(crawling_schedules), [_schedule_row(schedule) for schedule in new])
    return [schedule.seller_id.value for schedule in new]


def get(connection: Connection, seller_id: SellerId, *, lock: bool = False) -> tuple[Seller, CrawlingSchedule]:
    """A seller and its schedule, locked on request."""
    query = _JOINED.where(sellers.c.seller_id == seller_id.value)
    row = connection.execute(query.with_for_update(key_share=True) if lock else query).one_or_none()
    if row is None:
        raise NotFound(
            "NOT_FOUND_SELLER",
            korean=f"등록되지 않은 셀러입니다: {seller_id}",
            english=f"There is no seller {seller_id}: register it with `mustit seller add`",
        )
    return _seller(row), _schedule(row)


def with_schedules(connection: Connection) -> list[tuple[Seller, CrawlingSchedule]]:
    """Every seller and its schedule."""
    rows = connection.execute(_JOINED.order_by(sellers.c.seller_id))
    return [(_seller(row), _schedule(row)) for row in rows]


def save(connection: Connection, seller: Seller, schedule: CrawlingSchedule) -> None:
    """Store a seller and its schedule."""
    connection.execute(
        update(sellers).where(sellers.c.seller_id == seller.seller_id.value).values(**_seller_values(seller))
    )
    connection.execute(
        update(crawling_schedules)
        .where(crawling_schedules.c.schedule_id == schedule.id.value)
        .values(**_schedule_values(schedule), updated_at=seller.updated_at)
    )


def of_schedules(connection: Connection, schedule_id: ScheduleId | None = None) -> list[SellerId]:
    """The seller of a schedule; without an id, all sellers."""
    query = select(crawling_schedules.c.seller_id).order_by(crawling_schedules.c.seller_id)
    if schedule_id is not None:
        query = query.where(crawling_schedules.c.schedule_id == schedule_id.value)
    return [SellerId(seller_id) for seller_id in connection.execute(query).scalars()]


def overview(
    connection: Connection, status: SellerStatus | None = None, seller_id: SellerId | None = None
) -> list[SellerOverview]:
    """Sellers for an operator's list."""
    values = {"status": status and status.value, "seller_id": seller_id and seller_id.value}
    rows = connection.execute(_OVERVIEW, values)
    return [SellerOverview(_seller(r), r.next_due_at, r.last_triggered_at, r.complete_products) for r in rows]


def find_page(
    connection: Connection, *, status: SellerStatus | None, words: str | None, first: int, size: int
) -> tuple[list[ScheduledSeller], int]:
    """Sellers whose id or name contains these words, by id from the `first` one on, and how many there are in all."""
    wanted = {"status": status and status.value, "pattern": words and f"%{_escaped(words)}%"}
    total = connection.execute(_COUNT_FOUND, wanted).scalar_one()
    rows = connection.execute(_PAGE, {**wanted, "first": first, "size": size})
    return [_scheduled(row) for row in rows], total


def find_scheduled(connection: Connection, seller_id: SellerId) -> ScheduledSeller:
    """One seller with its schedule."""
    seller, schedule = get(connection, seller_id)
    return ScheduledSeller(seller, schedule.status, schedule.next_due_at, schedule.last_triggered_at)


def _escaped(words: str) -> str:
    return words.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _scheduled(row: Row[tuple[object, ...]]) -> ScheduledSeller:
    return ScheduledSeller(_seller(row), ScheduleStatus(row.schedule_status), row.next_due_at, row.last_triggered_at)


def first_registered(connection: Connection) -> datetime | None:
    """When the first seller was registered; None without sellers."""
    return connection.execute(select(func.min(sellers.c.created_at))).scalar_one()


def all_ids(connection: Connection) -> list[str]:
    """Every registered seller's id."""
    return list(connection.execute(select(sellers.c.seller_id).order_by(sellers.c.seller_id)).scalars())


def _seller_values(seller: Seller) -> dict[str, object]:
    interval = seller.interval
    return {
        "name": seller.name,
        "status": seller.status.value,
        "interval_amount": interval.amount,
        "interval_unit": interval.unit.value,
        "total_product_count": seller.total_product_count,
        "created_at": seller.created_at,
        "updated_at": seller.updated_at,
    }


def _schedule_row(schedule: CrawlingSchedule) -> dict[str, object]:
    return {
        "schedule_id": schedule.id.value,
        "seller_id": schedule.seller_id.value,
        "rule_name": schedule.rule_name,
        **_schedule_values(schedule),
    }


def _schedule_values(schedule: CrawlingSchedule) -> dict[str, object]:
    return {
        "expression": schedule.expression,
        "status": schedule.status.value,
        "next_due_at": schedule.next_due_at,
        "last_triggered_at": schedule.last_triggered_at,
        "failed_plans": schedule.failed_plans,
    }


def _seller(row: Row[tuple[object, ...]]) -> Seller:
    return Seller(
        seller_id=SellerId(row.seller_id),
        name=row.name,
        created_at=row.created_at,
        updated_at=row.updated_at,
        status=SellerStatus(row.status),
        interval=CrawlingInterval(row.interval_amount, IntervalUnit(row.interval_unit)),
        total_product_count=row.total_product_count,
    )


def _schedule(row: Row[tuple[object, ...]]) -> CrawlingSchedule:
    return CrawlingSchedule(
        id=ScheduleId(row.schedule_id),
        seller_id=SellerId(row.seller_id),
        interval=CrawlingInterval(row.interval_amount, IntervalUnit(row.interval_unit)),
        next_due_at=row.next_due_at,
        last_triggered_at=row.last_triggered_at,
        status=ScheduleStatus(row.schedule_status),
        failed_plans=row.failed_plans,
    )
