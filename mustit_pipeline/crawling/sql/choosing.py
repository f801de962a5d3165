"""Which sources of a seller's products a crawl fetches, by the recrawl policy."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, text

from mustit_pipeline.crawling.sql.expressions import SQL, column, hours_between
from mustit_pipeline.crawling.sql.learning import EVIDENCE
from mustit_pipeline.crawling.sql.tables import LEARNT_KINDS
from mustit_pipeline.domain.recrawl.choosing import Reason, Terms, fetched_before
from mustit_pipeline.domain.recrawl.learning import Evidence, SellerEvidence, listing, seller_rate, source_rate
from mustit_pipeline.domain.recrawl.worth import (
    Listing,
    Source,
    change_chance,
    is_believed,
    unseen_changes,
    value,
    weight,
)
from mustit_pipeline.domain.states import TaskType

SOURCES = (TaskType.PRODUCT_DETAIL, TaskType.PRODUCT_OPTION)
# Why a product whose listing entry has changed is fetched while the sweep goes on.
AT_ONCE = (Reason.NEW, Reason.LATE, Reason.SIGNALLED)
# Rows that are read and planned at a time.
CHUNK = 1000


@dataclass(frozen=True, slots=True)
class ChosenSource:
    """A source that a crawl fetches, and why."""

    item_no: int
    source: TaskType
    reason: Reason


@dataclass(frozen=True, slots=True)
class Reasons:
    """How many sources a crawl would fetch for each reason, and how many more it looked at."""

    chosen: dict[Reason, int]
    sources: int

    @property
    def left(self) -> int:
        """Sources that are not worth a request now, or for which none is left."""
        return self.sources - sum(self.chosen.values())


_SOURCE = Source(column("rate"), column("coalesce(age, 0)"), column("signals"), column("other_shown_rate"))
_SEEN = Listing(column("shown"), column("false_rate"))
_WEIGHT = weight(
    column("(NOT sold_out)"),  # pyright: ignore[reportArgumentType]
    column(hours_between("changed_at", ":now")),
    column("boost"),
    SQL,
)


def _believed_of(kind: str) -> str:
    """How one kind of source of the seller `s` behaves."""
    known = SellerEvidence(*(column(f"coalesce(s.{kind}_{name}, 0)") for name in EVIDENCE))
    seen = listing(known, SQL)
    return (
        f"{seen.shown} AS {kind}_shown, {seen.false_rate} AS {kind}_false_rate, "
        f"{seller_rate(known, SQL)} AS {kind}_prior"
    )


# One row, for a seller of whom nothing is known too.
BELIEVED = f"""
    believed AS MATERIALIZED (
        SELECT coalesce(s.boost, 1) AS seller_boost, {", ".join(map(_believed_of, LEARNT_KINDS))}
        FROM (VALUES (1)) AS one LEFT JOIN recrawl_sellers s ON s.seller_id = :seller_id
    )"""


def _rate_of(kind: str) -> str:
    own = Evidence(column(f"coalesce(r.{kind}_changes, 0)"), column(f"coalesce(r.{kind}_hours, 0)"))
    return f"{source_rate(own, column(f'b.{kind}_prior'), SQL)} AS {kind}_rate"


def rated(products: str) -> str:
    """The products `p` with the change rates of their sources, in a statement that begins with BELIEVED."""
    return f"""
        SELECT p.item_no, r.*, b.*, {", ".join(map(_rate_of, LEARNT_KINDS))}
        FROM ({products}) AS p
        CROSS JOIN believed b
        LEFT JOIN LATERAL (
            SELECT {", ".join(f"r.{name}" for name in _KNOWN)} FROM recrawl_products r
            WHERE r.seller_id = :seller_id AND r.item_no = p.item_no LIMIT 1
        ) AS r ON true"""


_KNOWN = (
    *(f"{kind}_{name}" for kind in LEARNT_KINDS for name in ("fetched_at", "changes", "hours", "signals", "failed_at")),
    "sold_out",
    "changed_at",
    "boost",
)


def _source(number: int, kind: str, other: str) -> str:
    return (
        f"({number}, {hours_between(f'{kind}_fetched_at', ':now')}, coalesce({kind}_signals, 0), {kind}_rate, "
        f"{kind}_shown, {kind}_false_rate, {other}_shown * {other}_rate, {kind}_failed_at)"
    )


_DETAIL, _OPTION = LEARNT_KINDS
_SOURCES = f"""
        SELECT item_no, f.*, coalesce(sold_out, false) AS sold_out, changed_at,
               coalesce(boost, 1) * seller_boost AS boost
        FROM rated CROSS JOIN LATERAL (
            VALUES {_source(0, _DETAIL, _OPTION)}, {_source(1, _OPTION, _DETAIL)}
        ) AS f(kind, age, signals, rate, shown, false_rate, other_shown_rate, failed_at)
        WHERE coalesce(f.failed_at < CAST(:failed_before AS timestamptz), true)"""


# The ranks and reasons are those of the policy's `chosen`.
def _chosen(products: str) -> str:
    return f"""
    WITH {BELIEVED}, rated AS MATERIALIZED ({rated(products)}
    ), sources AS MATERIALIZED ({_SOURCES}
    ), expected AS MATERIALIZED (
        SELECT *, {unseen_changes(_SOURCE, _SEEN, SQL)} AS unseen, {is_believed(_SOURCE, _SEEN, SQL)} AS believed,
               {_WEIGHT} AS weight
        FROM sources
    ), valued AS MATERIALIZED (
        SELECT item_no, kind, age, believed,
               CASE WHEN age IS NULL THEN 0
                    ELSE {value(column("unseen"), column("rate"), column("weight"), arithmetic=SQL)} END AS value,
               {change_chance(column("unseen"), SQL)} AS chance,
               row_number() OVER (ORDER BY age DESC NULLS LAST, item_no, kind) AS oldest
        FROM expected
    ), aged AS MATERIALIZED (
        SELECT coalesce(ceil(max(oldest - CAST(:promise_rate AS float8) * greatest(:latest - age, 0))), 0) AS late
        FROM valued WHERE age IS NOT NULL
    ), reasoned AS MATERIALIZED (
        SELECT item_no, kind, age, value,
               CASE WHEN age IS NULL THEN {int(Reason.NEW)}
                    WHEN age >= :late_age AND NOT :promise_broken THEN {int(Reason.LATE)}
                    WHEN value >= :price AND chance >= :min_chance AND believed THEN {int(Reason.SIGNALLED)}
                    WHEN oldest <= late THEN {int(Reason.AGE)}
                    WHEN value >= :price AND chance >= :min_chance THEN {int(Reason.VALUE)} END AS reason
        FROM valued CROSS JOIN aged
    ), ranked AS MATERIALIZED (
        SELECT *, row_number() OVER (
            PARTITION BY reason
            ORDER BY CASE WHEN reason IN ({int(Reason.LATE)}, {int(Reason.AGE)}) THEN -age ELSE -value END,
                     item_no, kind
        ) - 1 AS place
        FROM reasoned WHERE reason IS NOT NULL
    ), chosen AS (
        SELECT item_no, kind, reason FROM ranked
        ORDER BY CASE WHEN :promise_broken AND reason = {int(Reason.VALUE)} THEN {int(Reason.AGE)} ELSE reason END,
                 place, reason
        LIMIT :allowance
    )"""


# Of one seller, so many as it has: the products that a sweep has seen, or all that are live.
_SEEN_PRODUCTS = """
    SELECT item_no FROM products
    WHERE seller_id = :seller_id AND deleted_at IS NULL AND foreign_at IS NULL
      AND (CAST(:execution_id AS uuid) IS NULL OR last_seen_execution_id = :execution_id)"""
_THESE_PRODUCTS = """
    SELECT item_no FROM products
    WHERE seller_id = :seller_id AND item_no = ANY(CAST(:items AS bigint[])) AND deleted_at IS NULL
      AND foreign_at IS NULL"""

_CHOSEN = text(f"{_chosen(_SEEN_PRODUCTS)} SELECT item_no, kind, reason FROM chosen")
_AT_ONCE = text(f"""{_chosen(_THESE_PRODUCTS)}
    SELECT item_no, kind, reason FROM chosen WHERE reason IN ({", ".join(str(int(reason)) for reason in AT_ONCE)})
""")
_REASONS = text(f"""{_chosen(_SEEN_PRODUCTS)}, counted AS (
        SELECT reason, count(*) AS number FROM chosen GROUP BY reason)
    SELECT reason, number, (SELECT count(*) FROM sources) AS sources FROM counted
    UNION ALL
    SELECT NULL, 0, (SELECT count(*) FROM sources) WHERE NOT EXISTS (SELECT FROM counted)
""")


class Chooser:
    """The choice for one crawl, on its terms."""

    def __init__(
        self,
        connection: Connection,
        seller_id: str,
        terms: Terms,
        now: datetime,
        *,
        failed_before: datetime | None = None,
    ) -> None:
        """Products that failed later than `failed_before` are left out, where that is given."""
        self._connection = connection
        self._values: dict[str, object] = {
            "seller_id": seller_id,
            "now": now,
            "failed_before": failed_before,
            "allowance": max(0, terms.allowance),
            "price": terms.price,
            "late_age": fetched_before(terms.kept_age),
            "latest": fetched_before(terms.kept_age) - terms.look_hours,
            "promise_rate": terms.promise_rate,
            "promise_broken": terms.promise_broken,
            "min_chance": terms.min_chance,
        }

    def choose(self, execution_id: UUID | None) -> Iterator[list[ChosenSource]]:
        """What to fetch of the products that a sweep has seen, in order, in chunks: memory does not grow."""
        options = {"stream_results": True, "yield_per": CHUNK}
        rows = self._connection.execute(_CHOSEN, self._of(execution_id), execution_options=options)
        for chunk in rows.partitions():
            yield [_chosen_source(*row) for row in chunk]

    def choose_at_once(self, item_nos: Sequence[int]) -> list[ChosenSource]:
        """Which of these products are fetched while the sweep goes on: signalled ones that are believed."""
        rows = self._connection.execute(_AT_ONCE, self._values | {"items": list(item_nos)})
        return [_chosen_source(*row) for row in rows]

    def reasons(self, execution_id: UUID | None = None) -> Reasons:
        """How many it would choose for which reason."""
        rows = self._connection.execute(_REASONS, self._of(execution_id)).all()
        return Reasons({Reason(row.reason): row.number for row in rows if row.reason is not None}, rows[0].sources)

    def _of(self, execution_id: UUID | None) -> dict[str, object]:
        return self._values | {"execution_id": execution_id}


def _chosen_source(item_no: int, kind: int, reason: int) -> ChosenSource:
    return ChosenSource(item_no, SOURCES[kind], Reason(reason))
