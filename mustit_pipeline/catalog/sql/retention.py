"""Retention of bodies: deleted by age, or because a newer body repeats them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text

from mustit_pipeline.catalog.sql.tables import sellers_in
from mustit_pipeline.foundation.database import Database

# The most bodies deleted per seller and night, so that the list of ids stays bounded; the rest follows the next night.
MOST_PER_SELLER = 200_000


@dataclass(frozen=True, slots=True)
class Night:
    """The time of a maintenance run, and the cut-offs of repeated and of all outdated bodies."""

    now: datetime
    unchanged_before: datetime
    aged_before: datetime

    @property
    def values(self) -> dict[str, datetime]:
        return {"now": self.now, "unchanged_before": self.unchanged_before, "aged_before": self.aged_before}


@dataclass(frozen=True, slots=True)
class ExpiredBodies:
    """Bodies of one seller to delete: too old, or repeated by a newer one."""

    seller_id: str
    aged: int
    unchanged: int
    raw_ids: Sequence[int]

    @property
    def all_of_them(self) -> bool:
        """Whether none is left for the next night."""
        return len(self.raw_ids) < MOST_PER_SELLER


# A replay needs the newest processed body of each call, and a failed one without a newer body: both are kept.
_EXPIRED = text("""
    SELECT raw_id, old FROM (
        SELECT raw_id, fetched_at < :aged_before AS old, fetched_at < :unchanged_before AS settled,
               CASE status
                   WHEN 'FAILED' THEN row_number() OVER (PARTITION BY source, item_no, page_no ORDER BY raw_id DESC)
                   ELSE row_number() OVER (PARTITION BY status, source, item_no, page_no ORDER BY raw_id DESC)
               END AS newness,
               content_hash IS NOT NULL AND row_number() OVER (
                   PARTITION BY status, source, item_no, page_no, content_hash ORDER BY raw_id DESC) > 1 AS repeated
        FROM (SELECT * FROM product_raw_data WHERE seller_id = :seller_id AND status = 'PROCESSED'
              UNION ALL
              SELECT * FROM product_raw_data WHERE seller_id = :seller_id AND status = 'FAILED') AS done
    ) AS bodies
    WHERE newness > 1 AND (old OR (repeated AND settled))
    ORDER BY raw_id LIMIT :most
""")

_DELETE_BODIES = text("""
    DELETE FROM product_raw_data WHERE raw_id = ANY(CAST(:ids AS bigint[])) AND status IN ('PROCESSED', 'FAILED')
""")

_SOME_BODY = " OR ".join(
    f"""(SELECT r.raw_id FROM product_raw_data r
           WHERE r.seller_id = s.seller_id AND r.status = '{status}' AND {{times}} LIMIT 1) IS NOT NULL"""
    for status in ("PROCESSED", "FAILED")
)

# Only sellers with bodies are looked up: most of those that are registered may have none.
# A body can be deleted once it is old and a newer one exists. So a seller needs no examination if, since the last one,
# no body has become old and none has arrived. A body that was processed much later than it was fetched, or replayed, is
# examined when the next one becomes old.
_SELLERS_TO_EXAMINE = text(f"""
    WITH RECURSIVE {sellers_in("processed", "product_raw_data", "status = 'PROCESSED'")},
    {sellers_in("failed", "product_raw_data", "status = 'FAILED'")}
    SELECT s.seller_id FROM (SELECT seller_id FROM processed UNION SELECT seller_id FROM failed) AS s
    LEFT JOIN body_examinations x USING (seller_id)
    -- Most sellers need none: whether there is an old body is asked last.
    WHERE CASE WHEN x.seller_id IS NULL
           OR {_SOME_BODY.format(times="r.fetched_at >= x.unchanged_before AND r.fetched_at < :unchanged_before")}
           OR {_SOME_BODY.format(times="r.fetched_at >= x.aged_before AND r.fetched_at < :aged_before")}
           OR {_SOME_BODY.format(times="r.fetched_at >= x.examined_at")}
          THEN {_SOME_BODY.format(times="r.fetched_at < :unchanged_before")} ELSE false END
    ORDER BY s.seller_id
""")

_EXAMINED = text("""
    INSERT INTO body_examinations (seller_id, examined_at, unchanged_before, aged_before)
    SELECT seller_id, :now, :unchanged_before, :aged_before FROM unnest(CAST(:sellers AS text[])) AS e(seller_id)
    ON CONFLICT (seller_id) DO UPDATE
    SET examined_at = excluded.examined_at, unchanged_before = excluded.unchanged_before,
        aged_before = excluded.aged_before
""")


def sellers_to_examine(connection: Connection, night: Night) -> list[str]:
    """Sellers with bodies that may have expired since their last examination."""
    return list(connection.execute(_SELLERS_TO_EXAMINE, night.values).scalars())


def record_examined(connection: Connection, sellers: Sequence[str], night: Night) -> None:
    """Record that these sellers have no expired bodies left."""
    connection.execute(_EXAMINED, {"sellers": list(sellers), **night.values})


def expired_bodies(connection: Connection, seller_id: str, night: Night) -> ExpiredBodies:
    """The expired bodies of a seller."""
    values = {
        "seller_id": seller_id,
        "aged_before": night.aged_before,
        "unchanged_before": night.unchanged_before,
        "most": MOST_PER_SELLER,
    }
    found = connection.execute(_EXPIRED, values).all()
    aged = sum(row.old for row in found)
    return ExpiredBodies(seller_id, aged, len(found) - aged, [row.raw_id for row in found])


def delete_bodies(database: Database, raw_ids: Sequence[int], batch: int) -> Iterator[int]:
    """Delete bodies, one transaction per batch; a body that was reopened meanwhile is kept."""
    for first in range(0, len(raw_ids), batch):
        with database.transaction() as connection:
            removed = connection.execute(_DELETE_BODIES, {"ids": list(raw_ids[first : first + batch])}).rowcount
        yield removed
