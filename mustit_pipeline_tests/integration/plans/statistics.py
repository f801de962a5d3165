"""What the planner may believe at the worst moment, put into its catalogs by hand."""

from collections.abc import Callable

from sqlalchemy import Connection, text

from mustit_pipeline_tests.integration.rows import MONTH

_TASKS = f"crawler_tasks_{MONTH:%Y_%m}"
# Each queue while everything in it still has to be done.
_FULL = {
    ("product_raw_data", "status"): "PENDING",
    (_TASKS, "status"): "IN_PROGRESS",
    ("product_outbox", "status"): "WAITING",
    ("crawling_schedule_executions", "status"): "RUNNING",
    ("truth_samples", "verdict"): "OPEN",
    ("scheduler_outbox", "status"): "WAITING",
    # While one person had made all changes, all of one kind.
    ("audit_log", "actor"): "kim",
    ("audit_log", "action"): "user.add",
    ("audit_log", "target"): "seller 7",
}
_EMPTY_COLUMNS = (
    ("products", "published_hash"),
    ("product_outbox", "superseded_by"),
    ("alerts", "ended_at"),
)
_OF_SELLERS = ("products", "recrawl_products", "product_change_sets", "product_outbox", "product_raw_data", _TASKS)
_OF_EXECUTIONS = ("product_change_sets", "product_raw_data", "crawling_slices", _TASKS)


def queues_empty(connection: Connection) -> None:
    """Analyzed while nothing waited, and before the newcomers: as the database is filled."""


def queues_full(connection: Connection) -> None:
    """Analyzed while everything waited, and most of it is done by now."""
    for (table, column), state in _FULL.items():
        _restore(connection, table, column, f"'most_common_vals', '{{{state}}}', 'most_common_freqs', '{{1}}'::real[]")
    for table, column in _EMPTY_COLUMNS:
        _restore(connection, table, column, "", null_frac=1.0)
    # While one agent had made all requests, and one seller had had all crawls.
    _restore(connection, "agent_bookings", "agent_id", "", n_distinct=1.0)
    _restore(connection, "crawling_schedule_executions", "seller_id", "", n_distinct=1.0)
    ended = "'histogram_bounds', '{2020-01-01, 2020-01-02}'"
    for table, column in ((_TASKS, "lease_expires_at"), ("product_outbox", "next_attempt_at")):
        _restore(connection, table, column, ended, n_distinct=-1.0)


def unknown_sellers(connection: Connection) -> None:
    """The same, and of a seller that was not there yet many bodies are expected, but one product."""
    queues_full(connection)
    _restore(connection, "product_raw_data", "seller_id", "", n_distinct=30.0)
    _restore(connection, "products", "seller_id", "", n_distinct=-1.0)


def never_analyzed(connection: Connection) -> None:
    """Nothing is known of any table."""
    connection.execute(
        text("""
            SELECT pg_clear_relation_stats('public', c.relname), (
                SELECT count(pg_clear_attribute_stats('public', c.relname, a.attname, false)) FROM pg_attribute a
                WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)
            FROM pg_class c WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace
        """)
    )


def one_row_of_each(connection: Connection) -> None:
    """Analyzed when each seller, and each execution, had one row: every look-up by them alone seems to be as good."""
    for tables, column in ((_OF_SELLERS, "seller_id"), (_OF_EXECUTIONS, "execution_id")):
        for table in tables:
            _restore(connection, table, column, "", n_distinct=-1.0)


def _restore(
    connection: Connection, table: str, column: str, values: str, *, null_frac: float = 0.0, n_distinct: float = 1.0
) -> None:
    more = f", {values}" if values else ""
    connection.exec_driver_sql(f"SELECT pg_clear_attribute_stats('public', '{table}', '{column}', false)")
    connection.exec_driver_sql(f"""
        SELECT pg_restore_attribute_stats('schemaname', 'public', 'relname', '{table}', 'attname', '{column}',
                                          'inherited', false, 'null_frac', {null_frac}::real, 'avg_width', 10,
                                          'n_distinct', {n_distinct}::real{more})
    """)


STATISTICS: dict[str, Callable[[Connection], None]] = {
    "queues empty": queues_empty,
    "queues full": queues_full,
    "unknown sellers": unknown_sellers,
    "never analyzed": never_analyzed,
    "one row of each": one_row_of_each,
}
