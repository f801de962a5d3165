"""Waits until autovacuum has seen what was stored, and says what that left behind."""

import time

from sqlalchemy import text

from mustit_pipeline.store.database import Database

LOOK_SECONDS = 5.0

# By the thresholds that PostgreSQL has unless told otherwise.
_PENDING = text("""
    SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'autovacuum worker')
         + (SELECT count(*) FROM pg_stat_user_tables s JOIN pg_class c ON c.oid = s.relid
            WHERE s.schemaname = 'public'
              AND (s.n_mod_since_analyze > 50 + 0.1 * greatest(c.reltuples, 0)
                   OR s.n_dead_tup > 50 + 0.2 * greatest(c.reltuples, 0)
                   OR s.n_ins_since_vacuum > 1000 + 0.2 * greatest(c.reltuples, 0)))
""")

_STORED = text("""
    SELECT pg_database_size(current_database()) AS bytes, (SELECT count(*) FROM products) AS products,
           (SELECT count(*) FROM crawler_tasks) AS tasks, (SELECT count(*) FROM product_raw_data) AS bodies
""")


def rest(database: Database, longest_seconds: float) -> dict[str, float]:
    """Let autovacuum catch up with what was stored in bulk; returns what is stored and how long it took."""
    start = time.monotonic()
    while time.monotonic() - start < longest_seconds:
        # One look each, because a transaction sees the same statistics until its end.
        with database.reading() as connection:
            if not connection.execute(_PENDING).scalar_one():
                break
        time.sleep(LOOK_SECONDS)
    with database.reading() as connection:
        stored = connection.execute(_STORED).one()
    return {"rest_seconds": round(time.monotonic() - start, 1), **stored._asdict()}
