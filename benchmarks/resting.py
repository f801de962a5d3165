"""Waits until autovacuum has seen what was stored, and says what that left behind."""

import time

from sqlalchemy import Connection, text

from mustit_pipeline.foundation.database import Database

LOOK_SECONDS = 5.0


def _due(changed: str, kind: str) -> str:
    """Whether autovacuum would work on the table, by the table's own settings or the server's."""
    threshold, share = (
        f"""CAST(coalesce((SELECT option_value FROM pg_options_to_table(c.reloptions) WHERE option_name = '{name}'),
                          current_setting('{name}')) AS float8)"""
        for name in (f"autovacuum_{kind}_threshold", f"autovacuum_{kind}_scale_factor")
    )
    return f"{changed} > {threshold} + {share} * greatest(c.reltuples, 0)"


_PENDING = text(f"""
    SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'autovacuum worker')
         + (SELECT count(*) FROM pg_stat_user_tables s JOIN pg_class c ON c.oid = s.relid
            WHERE s.schemaname = 'public'
              AND ({_due("s.n_mod_since_analyze", "analyze")} OR {_due("s.n_dead_tup", "vacuum")}
                   OR {_due("s.n_ins_since_vacuum", "vacuum_insert")}))
""")

_STORED = text("""
    SELECT pg_database_size(current_database()) AS bytes, (SELECT count(*) FROM products) AS products,
           (SELECT count(*) FROM crawler_tasks) AS tasks, (SELECT count(*) FROM product_raw_data) AS bodies
""")


def rest(database: Database, longest_seconds: float) -> dict[str, float]:
    """Let autovacuum catch up with what was stored in bulk; returns what is stored and how long it took.

    It looks often and works without pauses meanwhile: nothing is timed yet, and what it leaves behind is the same.
    """
    start = time.monotonic()
    alter_system(database, "SET autovacuum_naptime = '1s'", "SET autovacuum_vacuum_cost_delay = 0")
    wait_for_autovacuum(database, longest_seconds, LOOK_SECONDS)
    alter_system(database, "RESET autovacuum_naptime", "RESET autovacuum_vacuum_cost_delay")
    # Otherwise the disk would be busy for minutes with what filling left in memory.
    with _autocommit(database) as connection:
        connection.exec_driver_sql("CHECKPOINT")
    with database.reading() as connection:
        stored = connection.execute(_STORED).one()
    return {"rest_seconds": round(time.monotonic() - start, 1), **stored._asdict()}


def alter_system(database: Database, *changes: str) -> None:
    with _autocommit(database) as connection:
        for change in changes:
            connection.exec_driver_sql(f"ALTER SYSTEM {change}")
        connection.exec_driver_sql("SELECT pg_reload_conf()")


def _autocommit(database: Database) -> Connection:
    return database.engine.connect().execution_options(isolation_level="AUTOCOMMIT")


def wait_for_autovacuum(database: Database, longest_seconds: float, look_seconds: float) -> None:
    """Return once no table asks for it and it does not work, or after so long."""
    start = time.monotonic()
    while time.monotonic() - start < longest_seconds:
        # One look each, because a transaction sees the same statistics until its end.
        with database.reading() as connection:
            if not connection.execute(_PENDING).scalar_one():
                break
        time.sleep(look_seconds)
