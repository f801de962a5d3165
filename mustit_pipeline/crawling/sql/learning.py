"""What fetches and listings teach the recrawl policy, written in the transaction that stores them."""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from datetime import datetime

from msgspec import Struct
from sqlalchemy import Connection, text

from mustit_pipeline.catalog.canonical import READING
from mustit_pipeline.crawling.sql.expressions import SQL, column, hours_between
from mustit_pipeline.crawling.sql.tables import LEARNT_KINDS
from mustit_pipeline.domain.recrawl.learning import (
    Evidence,
    SellerEvidence,
    fetched_evidence,
    kept_share,
    learnt,
    learnt_of_seller,
    listing,
    seller_rate,
    source_rate,
)
from mustit_pipeline.domain.recrawl.worth import Listing, Source
from mustit_pipeline.domain.states import TaskType

EVIDENCE = tuple(each.name for each in fields(SellerEvidence))


class Fetched(Struct, frozen=True):
    """That a source of a product was fetched, and whether it had changed; None where that cannot be said."""

    seller_id: str
    item_no: int
    source: TaskType
    at: datetime
    changed: bool | None
    sold_out: bool | None = None


def _of_kinds(template: str, between: str = ",\n           ") -> str:
    return between.join(
        template.replace("KIND", kind).replace("OTHER", other)
        for kind, other in zip(LEARNT_KINDS, reversed(LEARNT_KINDS), strict=True)
    )


def _evidence(prefix: str) -> SellerEvidence:
    return SellerEvidence(*(column(f"{prefix}{name}") for name in EVIDENCE))


def _named(found: SellerEvidence, prefix: str) -> str:
    return ", ".join(f"{getattr(found, name)} AS {prefix}{name}" for name in EVIDENCE)


# Of one kind of source; KIND stands for its name, OTHER for that of the other kind.
_OWN = Evidence(column("KIND_changes"), column("KIND_hours"))
_SEEN = listing(_evidence("s_KIND_"), SQL)
_PRIOR = seller_rate(_evidence("s_KIND_"), SQL)
_RATE = source_rate(_OWN, column("KIND_prior"), SQL)
_FETCHED = fetched_evidence(
    Source(column("KIND_rate"), column("KIND_age"), column("KIND_signals"), column("(OTHER_shown * OTHER_rate)")),
    Listing(column("KIND_shown"), column("KIND_false_rate")),
    column("CAST(KIND_changed AS int)"),
    SQL,
)
_LEARNT = learnt(_OWN, _evidence("KIND_fetched_"), kept_share(column("KIND_age"), SQL))
_OF_SELLER = learnt_of_seller(_evidence("r.KIND_"), _evidence("excluded.KIND_"), column("kept"))
_KEPT = kept_share(column(hours_between("r.learnt_at", "excluded.learnt_at")), SQL)

# What is known is looked up by key, and all that follows is computed from it: products and sellers learn from the same
# numbers. All rows are written in one order, so that batches that meet cannot deadlock. A first fetch teaches nothing,
# and neither does one that was read under other rules than the last.
_LEARN = text(f"""
    WITH known AS MATERIALIZED (
        SELECT l.*, p.changed_at, p.sold_out AS was_sold_out,
           {
    _of_kinds(
        "p.KIND_fetched_at, p.KIND_failed_at, p.KIND_reading, coalesce(p.KIND_changes, 0) AS KIND_changes, "
        "coalesce(p.KIND_hours, 0) AS KIND_hours, coalesce(p.KIND_signals, 0) AS KIND_signals, "
        + ", ".join(f"coalesce(s.KIND_{name}, 0) AS s_KIND_{name}" for name in EVIDENCE)
        + f''', CASE WHEN l.KIND_changed IS NOT NULL AND p.KIND_reading = {READING}
                  THEN {hours_between('p.KIND_fetched_at', 'l.KIND_at')} END AS KIND_age'''
    )
}
        FROM unnest(CAST(:sellers AS text[]), CAST(:items AS bigint[]), CAST(:signals AS int[]),
                    CAST(:sold_out AS boolean[]), CAST(:detail_at AS timestamptz[]), CAST(:detail_changed AS boolean[]),
                    CAST(:option_at AS timestamptz[]), CAST(:option_changed AS boolean[]),
                    CAST(:detail_failed AS timestamptz[]), CAST(:option_failed AS timestamptz[]))
             AS l(seller_id, item_no, new_signals, sold_out, detail_at, detail_changed, option_at, option_changed,
                  detail_failed, option_failed)
        LEFT JOIN LATERAL (
            SELECT * FROM recrawl_products p WHERE p.seller_id = l.seller_id AND p.item_no = l.item_no LIMIT 1
        ) AS p ON true
        LEFT JOIN LATERAL (SELECT * FROM recrawl_sellers s WHERE s.seller_id = l.seller_id LIMIT 1) AS s ON true
    ), believed AS MATERIALIZED (
        SELECT *, {
    _of_kinds(f"{_SEEN.shown} AS KIND_shown, {_SEEN.false_rate} AS KIND_false_rate, {_PRIOR} AS KIND_prior")
}
        FROM known
    ), rated AS MATERIALIZED (
        SELECT *, {_of_kinds(f"{_RATE} AS KIND_rate")} FROM believed
    ), fetched AS MATERIALIZED (
        SELECT *, {_of_kinds(_named(_FETCHED, "KIND_fetched_"))} FROM rated
    ), taught AS MATERIALIZED (
        SELECT *, {_of_kinds(f"{_LEARNT.changes} AS KIND_new_changes, {_LEARNT.hours} AS KIND_new_hours")} FROM fetched
    ), products AS (
        INSERT INTO recrawl_products (
            seller_id, item_no, changed_at, sold_out,
            {_of_kinds("KIND_fetched_at, KIND_failed_at, KIND_changes, KIND_hours, KIND_signals, KIND_reading")})
        SELECT seller_id, item_no,
           greatest(changed_at, {_of_kinds("CASE WHEN KIND_age IS NOT NULL AND KIND_changed THEN KIND_at END", ", ")}),
           coalesce(sold_out, was_sold_out, false),
           {
    _of_kinds(f'''coalesce(KIND_at, KIND_fetched_at),
           coalesce(KIND_failed, CASE WHEN KIND_at IS NULL THEN KIND_failed_at END),
           CASE WHEN KIND_age IS NULL THEN KIND_changes ELSE KIND_new_changes END,
           CASE WHEN KIND_age IS NULL THEN KIND_hours ELSE KIND_new_hours END,
           CASE WHEN KIND_at IS NULL THEN KIND_signals + new_signals ELSE 0 END,
           CASE WHEN KIND_at IS NULL THEN coalesce(KIND_reading, 0) ELSE {READING} END''')
}
        FROM taught ORDER BY seller_id COLLATE "C", item_no
        ON CONFLICT (seller_id, item_no) DO UPDATE SET changed_at = excluded.changed_at, sold_out = excluded.sold_out,
           {
    _of_kinds('''KIND_fetched_at = excluded.KIND_fetched_at, KIND_failed_at = excluded.KIND_failed_at,
           KIND_changes = excluded.KIND_changes,
           KIND_hours = excluded.KIND_hours, KIND_signals = excluded.KIND_signals,
           KIND_reading = excluded.KIND_reading''')
}
    ), sums AS (
        SELECT seller_id, greatest({_of_kinds("max(KIND_at)", ", ")}) AS learnt_at,
           {
    _of_kinds(
        ", ".join(
            f"coalesce(sum(KIND_fetched_{name}) FILTER (WHERE KIND_age IS NOT NULL), 0) AS KIND_{name}"
            for name in EVIDENCE
        )
    )
}
        FROM taught GROUP BY seller_id HAVING count({_of_kinds("KIND_age", ") + count(")}) > 0
    )
    INSERT INTO recrawl_sellers AS r (
        seller_id, learnt_at, {_of_kinds(", ".join(f"KIND_{name}" for name in EVIDENCE), ", ")})
    SELECT seller_id, learnt_at, {_of_kinds(", ".join(f"KIND_{name}" for name in EVIDENCE), ", ")}
    FROM sums ORDER BY seller_id COLLATE "C"
    ON CONFLICT (seller_id) DO UPDATE SET learnt_at = greatest(r.learnt_at, excluded.learnt_at),
       {
    _of_kinds(
        ", ".join(
            f"KIND_{name} = {getattr(_OF_SELLER, name)}".replace("kept", f"coalesce({_KEPT}, 1)") for name in EVIDENCE
        )
    )
}
""")


class _Lesson:
    """All that a batch says of one product."""

    def __init__(self) -> None:
        self.failed: dict[TaskType, datetime] = {}
        self.signals = 0
        self.fetched: dict[TaskType, Fetched] = {}


def learn(
    connection: Connection,
    fetched: Iterable[Fetched],
    signalled: Iterable[tuple[str, int]],
    failed: Mapping[tuple[str, int, TaskType], datetime] | None = None,
) -> None:
    """Record fetches, products (by seller and item) whose listing entry has changed, and sources whose task failed."""
    lessons: dict[tuple[str, int], _Lesson] = {}
    for one in fetched:
        lessons.setdefault((one.seller_id, one.item_no), _Lesson()).fetched[one.source] = one
    for key in signalled:
        lessons.setdefault(key, _Lesson()).signals += 1
    for (seller_id, item_no, source), at in (failed or {}).items():
        lessons.setdefault((seller_id, item_no), _Lesson()).failed[source] = at
    if not lessons:
        return
    details = [lesson.fetched.get(TaskType.PRODUCT_DETAIL) for lesson in lessons.values()]
    options = [lesson.fetched.get(TaskType.PRODUCT_OPTION) for lesson in lessons.values()]
    values = {
        "sellers": [seller_id for seller_id, _ in lessons],
        "items": [item_no for _, item_no in lessons],
        "signals": [lesson.signals for lesson in lessons.values()],
        "sold_out": [None if one is None else one.sold_out for one in details],
        "detail_at": [None if one is None else one.at for one in details],
        "detail_changed": [None if one is None else one.changed for one in details],
        "option_at": [None if one is None else one.at for one in options],
        "option_changed": [None if one is None else one.changed for one in options],
        "detail_failed": [lesson.failed.get(TaskType.PRODUCT_DETAIL) for lesson in lessons.values()],
        "option_failed": [lesson.failed.get(TaskType.PRODUCT_OPTION) for lesson in lessons.values()],
    }
    connection.execute(_LEARN, values)
