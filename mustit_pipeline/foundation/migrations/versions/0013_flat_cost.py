"""Indexes that each serve their own statements, and vacuuming that keeps up with queues."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

# How each table is written, and its settings for that:
QUEUE = {
    # Every row is inserted and then moves through its states. The state is in the condition of an index, so no such
    # update is HOT, whatever the fill factor: only vacuum removes dead rows and index entries. The default of a fifth
    # of a large table would be millions of them.
    "autovacuum_vacuum_scale_factor": 0.02,
    "autovacuum_vacuum_threshold": 2000,
    "autovacuum_analyze_scale_factor": 0.02,
}
BODIES = {
    **QUEUE,
    # A body's content is stored beside the row until it is processed, and is dead from then on.
    "toast.autovacuum_vacuum_scale_factor": 0.05,
    "toast.autovacuum_vacuum_threshold": 5000,
}
HISTORY = {
    # Insert-only: nothing to clean, but statistics have to know the newest times, and pages have to be marked
    # all-visible.
    "autovacuum_vacuum_insert_scale_factor": 0.05,
    "autovacuum_analyze_scale_factor": 0.02,
}
PRODUCTS = {
    # Each crawl updates every row that it sees, mostly no indexed column: with free space in the page that is HOT.
    "fillfactor": 80,
    "autovacuum_vacuum_scale_factor": 0.05,
    "autovacuum_analyze_scale_factor": 0.02,
    "toast.autovacuum_vacuum_scale_factor": 0.05,
}
EXECUTIONS = {
    # A few rows are updated with every batch of results, only their counters: HOT, as long as pages have free space.
    "fillfactor": 50,
    "autovacuum_vacuum_scale_factor": 0.02,
    "autovacuum_vacuum_threshold": 500,
}
SETTINGS = {
    "product_raw_data": BODIES,
    "product_outbox": QUEUE,
    "product_change_sets": HISTORY,
    "products": PRODUCTS,
    "crawling_schedule_executions": EXECUTIONS,
}

PENDING, PROCESSED, FAILED = (sa.text(f"status = '{status}'") for status in ("PENDING", "PROCESSED", "FAILED"))
BY_TIME = sa.text("version > 0")
SEEN_AGAIN = "(deleted_at IS NULL OR {seen})"
UNPUBLISHED = "complete AND data_hash IS DISTINCT FROM published_hash AND " + SEEN_AGAIN


def upgrade() -> None:
    op.drop_index("ix_crawler_tasks_seller_id_created_at", "crawler_tasks")
    op.drop_index("ix_crawler_tasks_status_created_at", "crawler_tasks")
    # A month is every task of its partition: without statistics the planner must not take it for as selective as a key.
    _set_task_key("task_id", "task_month")
    op.drop_index("ix_crawler_tasks_leases", "crawler_tasks")
    leased = sa.text("lease_expires_at IS NOT NULL")
    op.create_index("ix_crawler_tasks_leases", "crawler_tasks", ["lease_expires_at"], postgresql_where=leased)

    op.drop_index("ix_product_raw_data_status_fetched_at", "product_raw_data")
    op.drop_index("ix_product_raw_data_pending_items", "product_raw_data")
    op.drop_index("ix_product_raw_data_pending", "product_raw_data")
    op.drop_index("ix_product_raw_data_seller_id_fetched_at", "product_raw_data")
    pending = ["seller_id", "source", "item_no", "raw_id"]
    op.create_index("ix_product_raw_data_pending", "product_raw_data", pending, postgresql_where=PENDING)
    for name, state in (("processed", PROCESSED), ("failed", FAILED)):
        columns = ["seller_id", "fetched_at"]
        op.create_index(f"ix_product_raw_data_{name}", "product_raw_data", columns, postgresql_where=state)

    op.drop_index("ix_products_item_no", "products")
    op.create_index("ix_products_item_no", "products", ["item_no"], postgresql_using="hash")
    op.drop_index("ix_products_seller_id_complete", "products")
    op.create_index(
        "ix_products_live", "products", ["seller_id"], postgresql_where=sa.text("complete AND deleted_at IS NULL")
    )
    # last_seen_execution_id changes with every crawl, absent_sweeps does not.
    op.execute("""
        UPDATE products SET absent_sweeps = 1
        WHERE deleted_at IS NOT NULL AND last_seen_execution_id IS NULL AND absent_sweeps = 0
    """)
    _index_unpublished("absent_sweeps = 0")

    op.drop_index("ix_product_change_sets_item_no_version", "product_change_sets")
    op.drop_index("ix_product_change_sets_seller_id_detected_at", "product_change_sets")
    op.create_index(
        "ix_product_change_sets_detected",
        "product_change_sets",
        ["seller_id", "detected_at"],
        postgresql_where=BY_TIME,
    )

    op.drop_index("ix_product_outbox_status_created_at", "product_outbox")
    op.create_index("ix_product_outbox_states", "product_outbox", ["status", "created_at"], postgresql_where=BY_TIME)

    # The few open rows are all in the unique index that allows one per seller.
    op.drop_index("ix_crawling_schedule_executions_status", "crawling_schedule_executions")
    op.create_index(
        "ix_executions_created",
        "crawling_schedule_executions",
        ["created_at"],
        postgresql_where=sa.text("created_at > '-infinity'"),
    )

    for table, settings in SETTINGS.items():
        op.execute(f"ALTER TABLE {table} SET ({_as_sql(settings)})")
    for partition in _task_partitions():
        op.execute(f"ALTER TABLE {partition} SET ({_as_sql(QUEUE)})")


def downgrade() -> None:
    for partition in _task_partitions():
        op.execute(f"ALTER TABLE {partition} RESET ({', '.join(QUEUE)})")
    for table, settings in SETTINGS.items():
        op.execute(f"ALTER TABLE {table} RESET ({', '.join(settings)})")

    op.drop_index("ix_executions_created", "crawling_schedule_executions")
    op.create_index("ix_crawling_schedule_executions_status", "crawling_schedule_executions", ["status"])

    op.drop_index("ix_product_outbox_states", "product_outbox")
    op.create_index("ix_product_outbox_status_created_at", "product_outbox", ["status", "created_at"])

    op.drop_index("ix_product_change_sets_detected", "product_change_sets")
    op.create_index("ix_product_change_sets_seller_id_detected_at", "product_change_sets", ["seller_id", "detected_at"])
    op.create_index("ix_product_change_sets_item_no_version", "product_change_sets", ["item_no", "version"])

    _index_unpublished("last_seen_execution_id IS NOT NULL")
    op.execute("UPDATE products SET absent_sweeps = 0 WHERE deleted_at IS NOT NULL AND absent_sweeps > 0")
    op.drop_index("ix_products_live", "products")
    op.create_index("ix_products_seller_id_complete", "products", ["seller_id", "complete"])
    op.drop_index("ix_products_item_no", "products")
    op.create_index("ix_products_item_no", "products", ["item_no"])

    for name in ("failed", "processed", "pending"):
        op.drop_index(f"ix_product_raw_data_{name}", "product_raw_data")
    op.create_index("ix_product_raw_data_seller_id_fetched_at", "product_raw_data", ["seller_id", "fetched_at"])
    pending = ["seller_id", "source", "raw_id"]
    op.create_index("ix_product_raw_data_pending", "product_raw_data", pending, postgresql_where=PENDING)
    items = ["seller_id", "item_no"]
    op.create_index("ix_product_raw_data_pending_items", "product_raw_data", items, postgresql_where=PENDING)
    op.create_index("ix_product_raw_data_status_fetched_at", "product_raw_data", ["status", "fetched_at"])

    op.drop_index("ix_crawler_tasks_leases", "crawler_tasks")
    leased = sa.text("status = 'IN_PROGRESS'")
    op.create_index("ix_crawler_tasks_leases", "crawler_tasks", ["lease_expires_at"], postgresql_where=leased)
    _set_task_key("task_month", "task_id")
    op.create_index("ix_crawler_tasks_status_created_at", "crawler_tasks", ["status", "created_at"])
    op.create_index("ix_crawler_tasks_seller_id_created_at", "crawler_tasks", ["seller_id", "created_at"])


def _set_task_key(*columns: str) -> None:
    op.drop_constraint("pk_crawler_tasks", "crawler_tasks")
    op.create_primary_key("pk_crawler_tasks", "crawler_tasks", list(columns))


def _index_unpublished(seen: str) -> None:
    op.drop_index("ix_products_unpublished", "products")
    op.create_index(
        "ix_products_unpublished",
        "products",
        ["seller_id", "item_no"],
        postgresql_where=sa.text(UNPUBLISHED.format(seen=seen)),
    )


def _task_partitions() -> list[str]:
    """Each partition has its own settings; later partitions get theirs when they are created."""
    query = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'crawler_tasks'::regclass"
    return list(op.get_bind().execute(sa.text(query)).scalars())


def _as_sql(settings: dict[str, float]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in settings.items())
