"""Products compared with the marketplace: drawn at random, kept until their difference is explained or proven."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random, SystemRandom
from uuid import UUID

from sqlalchemy import Connection, text

from mustit_pipeline.domain.states import ExecutionStatus, SellerStatus, TaskStatus, TaskType, TruthVerdict
from mustit_pipeline.foundation.aging import Aged

AGED = Aged("truth_samples", ("judged_at",))

IDS = 2**128
# Where more products are stored than are listed, windows hold more than one; and never more than twice as many.
MOST_DRAWN = 2
CHANCE = SystemRandom()

# The two calls of a product's content.
_CALLS = f"('{TaskType.PRODUCT_DETAIL.value}:' || t.item_no, '{TaskType.PRODUCT_OPTION.value}:' || t.item_no)"


@dataclass(frozen=True, slots=True)
class Drawn:
    """A product that is to be compared."""

    seller_id: str
    item_no: int
    # How many products its seller lists.
    seller_products: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Suspect:
    """A product that differed: the hash of the marketplace's data, and whether a crawl has fetched it since."""

    sample_id: UUID
    product: Drawn
    said_hash: str
    sampled_at: datetime
    refetched: bool
    interval: timedelta


@dataclass(frozen=True, slots=True)
class Known:
    """The catalog's data of a product."""

    detail_hash: str | None
    option_hash: str | None
    detail: str | None
    deleted: bool


@dataclass(frozen=True, slots=True)
class Sample:
    """The result of one comparison."""

    product: Drawn
    verdict: TruthVerdict
    said_hash: str | None = None
    difference: str | None = None


# The products whose ids lie in these windows, through the primary key: a window of a random place and a given width
# holds each product as likely as any other, whatever the gaps between ids. It is as wide as to hold one; the limit
# bounds the cost should the number of products be wrong. num_nonnulls() keeps the planner from sorting all live
# products instead.
MOST_IN_WINDOW = 20
_DRAW = text(f"""
    SELECT * FROM (
        SELECT DISTINCT ON (d.product_id) d.seller_id, d.item_no,
               (SELECT s.total_product_count FROM sellers s WHERE s.seller_id = d.seller_id) AS total_product_count
        FROM unnest(CAST(:lows AS uuid[]), CAST(:highs AS uuid[])) AS w(low, high)
        CROSS JOIN LATERAL (
            SELECT p.product_id, p.seller_id, p.item_no FROM products p
            WHERE p.product_id BETWEEN w.low AND w.high
              AND p.complete AND num_nonnulls(p.deleted_at) = 0 AND p.version > 0
              AND (SELECT s.status FROM sellers s WHERE s.seller_id = p.seller_id) = '{SellerStatus.ACTIVE.value}'
            ORDER BY p.product_id LIMIT {MOST_IN_WINDOW}
        ) AS d
    ) AS drawn
    ORDER BY random() LIMIT :most
""")

_LISTED = text(f"""
    SELECT coalesce(sum(total_product_count), 0) FROM sellers WHERE status = '{SellerStatus.ACTIVE.value}'
""")

# A product counts as refetched if a later whole crawl has fetched both bodies. Suspects that can be decided come first,
# then the earliest deadline: a suspect that waits for its seller's next crawl does not delay the others.
_SUSPECTS = text(f"""
    SELECT * FROM (
        SELECT t.sample_id, t.seller_id, t.item_no, t.said_hash, t.sampled_at,
               EXISTS (SELECT FROM crawling_schedule_executions e
                       JOIN crawler_tasks k ON k.task_month = e.task_month AND k.execution_id = e.execution_id
                       WHERE e.seller_id = t.seller_id AND e.started_at >= t.sampled_at
                         AND e.status = '{ExecutionStatus.COMPLETED.value}' AND k.task_key IN {_CALLS}
                         AND k.status = '{TaskStatus.COMPLETED.value}'
                       GROUP BY e.execution_id HAVING count(*) = 2) AS refetched,
               CASE s.interval_unit WHEN 'DAYS' THEN make_interval(days => s.interval_amount)
                                    ELSE make_interval(hours => s.interval_amount) END AS interval
        FROM truth_samples t JOIN sellers s USING (seller_id)
        WHERE t.verdict = '{TruthVerdict.OPEN.value}'
    ) AS open
    ORDER BY refetched DESC, sampled_at + 2 * interval LIMIT :most
""")

_KNOWN = text("""
    SELECT p.seller_id, p.item_no, p.detail_data_hash, p.option_data_hash, p.detail_data, p.deleted_at
    FROM unnest(CAST(:sellers AS text[]), CAST(:items AS bigint[])) AS w(seller_id, item_no)
    JOIN products p ON p.seller_id = w.seller_id AND p.item_no = w.item_no
""")

_ADD = text(f"""
    INSERT INTO truth_samples (seller_id, item_no, verdict, said_hash, difference, sampled_at, judged_at)
    SELECT a.seller_id, a.item_no, a.verdict, a.said, a.difference, :at,
           CASE WHEN a.verdict <> '{TruthVerdict.OPEN.value}' THEN CAST(:at AS timestamptz) END
    FROM unnest(CAST(:sellers AS text[]), CAST(:items AS bigint[]), CAST(:verdicts AS text[]),
                CAST(:said AS text[]), CAST(:differences AS text[])) AS a(seller_id, item_no, verdict, said, difference)
    ON CONFLICT DO NOTHING
""")

# A product whose data changed again waits for the next crawl again.
_JUDGE = text(f"""
    UPDATE truth_samples t
    SET verdict = j.verdict, said_hash = j.said, difference = coalesce(j.difference, t.difference),
        sampled_at = CASE WHEN j.verdict = '{TruthVerdict.OPEN.value}' AND j.said <> t.said_hash
                          THEN CAST(:at AS timestamptz) ELSE t.sampled_at END,
        judged_at = CASE WHEN j.verdict <> '{TruthVerdict.OPEN.value}' THEN CAST(:at AS timestamptz) END
    FROM unnest(CAST(:ids AS uuid[]), CAST(:verdicts AS text[]), CAST(:said AS text[]), CAST(:differences AS text[]))
         AS j(id, verdict, said, difference)
    WHERE t.sample_id = j.id AND t.verdict = '{TruthVerdict.OPEN.value}'
""")

# Their sellers are not crawled: a difference proves nothing, and no deadline applies.
_FORGET_INACTIVE = text(f"""
    DELETE FROM truth_samples t USING sellers s
    WHERE t.verdict = '{TruthVerdict.OPEN.value}' AND s.seller_id = t.seller_id
      AND s.status <> '{SellerStatus.ACTIVE.value}'
""")

_WRONG = text(f"""
    SELECT seller_id || ' ' || item_no || ' (' || coalesce(difference, '') || ')' FROM truth_samples
    WHERE judged_at >= :since AND verdict = '{TruthVerdict.WRONG.value}' ORDER BY judged_at DESC LIMIT :most
""")


def listed_products(connection: Connection) -> int:
    """The products that active sellers list."""
    return int(connection.execute(_LISTED).scalar_one())


def draw(connection: Connection, number: int, chance: Random = CHANCE) -> list[Drawn]:
    """About so many published products of active sellers, each as likely as any other."""
    width = IDS // max(listed_products(connection), 1)
    windows = [window for _ in range(number) for window in _windows(chance.randrange(IDS), width)]
    values = {
        "lows": [UUID(int=low) for low, _ in windows],
        "highs": [UUID(int=high) for _, high in windows],
        "most": MOST_DRAWN * number,
    }
    rows = connection.execute(_DRAW, values)
    return [Drawn(row.seller_id, row.item_no, row.total_product_count) for row in rows]


def _windows(low: int, width: int) -> list[tuple[int, int]]:
    """The ids from one on, going on from the first after the last, as ranges with both ends."""
    high = low + width - 1
    return [(low, high)] if high < IDS else [(low, IDS - 1), (0, high - IDS)]


def suspects(connection: Connection, most: int) -> list[Suspect]:
    """Products whose difference is neither explained nor proven, decidable ones first."""
    return [
        Suspect(
            row.sample_id, Drawn(row.seller_id, row.item_no), row.said_hash, row.sampled_at, row.refetched, row.interval
        )
        for row in connection.execute(_SUSPECTS, {"most": most})
    ]


def forget_inactive(connection: Connection) -> None:
    """Drop the suspects of inactive sellers."""
    connection.execute(_FORGET_INACTIVE)


def known(connection: Connection, products: Sequence[Drawn]) -> dict[Drawn, Known]:
    """The catalog's present data of products."""
    values = {"sellers": [one.seller_id for one in products], "items": [one.item_no for one in products]}
    return {
        Drawn(row.seller_id, row.item_no): Known(
            row.detail_data_hash, row.option_data_hash, row.detail_data, row.deleted_at is not None
        )
        for row in connection.execute(_KNOWN, values)
    }


def add(connection: Connection, samples: Sequence[Sample], at: datetime) -> None:
    """Remember how products compared."""
    drawn = [one.product for one in samples]
    values = {
        "at": at,
        "sellers": [product.seller_id for product in drawn],
        "items": [product.item_no for product in drawn],
        "verdicts": [one.verdict.value for one in samples],
        "said": [one.said_hash for one in samples],
        "differences": [one.difference for one in samples],
    }
    connection.execute(_ADD, values)


def judge(connection: Connection, judged: Sequence[tuple[Suspect, Sample]], at: datetime) -> None:
    """Store the verdicts on suspects."""
    values = {
        "at": at,
        "ids": [suspect.sample_id for suspect, _ in judged],
        "verdicts": [one.verdict.value for _, one in judged],
        "said": [one.said_hash for _, one in judged],
        "differences": [one.difference for _, one in judged],
    }
    connection.execute(_JUDGE, values)


def wrong(connection: Connection, since: datetime, most: int) -> list[str]:
    """Products that were proven wrong, newest first."""
    return list(connection.execute(_WRONG, {"since": since, "most": most}).scalars())
