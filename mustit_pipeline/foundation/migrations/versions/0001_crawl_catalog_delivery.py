"""Everything that a crawl, its changes and its deliveries need."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("CREATE SEQUENCE crawler_task_seq")

    op.create_table(
        "circuit_breakers",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("failures", sa.Integer(), server_default="0", nullable=False),
        sa.Column("open_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_circuit_breakers")),
    )
    op.create_table(
        "crawler_tasks",
        sa.Column("task_month", sa.Date(), nullable=False),
        sa.Column("task_id", sa.Uuid(), nullable=False),
        sa.Column("seq", sa.BigInteger(), server_default=sa.text("nextval('crawler_task_seq')"), nullable=False),
        sa.Column("execution_id", sa.Uuid(), nullable=False),
        sa.Column("seller_id", sa.Text(), nullable=False),
        sa.Column("task_type", sa.Text(), nullable=False),
        sa.Column("task_key", sa.Text(), nullable=False),
        sa.Column("item_no", sa.BigInteger(), nullable=True),
        sa.Column("page_no", sa.Integer(), nullable=True),
        sa.Column("probe", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("request_url", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("priority", sa.SmallInteger(), nullable=False),
        sa.Column("retry_count", sa.SmallInteger(), server_default="0", nullable=False),
        sa.Column("release_count", sa.SmallInteger(), server_default="0", nullable=False),
        sa.Column("available_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("lease_owner", sa.Text(), nullable=True),
        sa.Column("lease_no", sa.Integer(), server_default="0", nullable=False),
        sa.Column("lease_expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("error_code", sa.Text(), nullable=True),
        sa.Column("error_text", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("published_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("completed_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "(status = 'IN_PROGRESS') = (lease_owner IS NOT NULL)",
            name=op.f("ck_crawler_tasks_lease_while_in_progress"),
        ),
        sa.CheckConstraint(
            "(task_type = 'MINISHOP') = (item_no IS NULL)", name=op.f("ck_crawler_tasks_item_for_products")
        ),
        sa.CheckConstraint(
            "(task_type = 'MINISHOP') = (page_no IS NOT NULL)", name=op.f("ck_crawler_tasks_page_for_listings")
        ),
        sa.CheckConstraint(
            "status IN ('WAITING', 'PUBLISHED', 'IN_PROGRESS', 'COMPLETED', 'FAILED', 'RETRY')",
            name=op.f("ck_crawler_tasks_status_known"),
        ),
        sa.CheckConstraint(
            "task_type IN ('MINISHOP', 'PRODUCT_DETAIL', 'PRODUCT_OPTION')",
            name=op.f("ck_crawler_tasks_task_type_known"),
        ),
        sa.PrimaryKeyConstraint("task_month", "task_id", name=op.f("pk_crawler_tasks")),
        sa.UniqueConstraint(
            "task_month", "execution_id", "task_key", name=op.f("uq_crawler_tasks_task_month_execution_id_task_key")
        ),
        postgresql_partition_by="RANGE (task_month)",
    )
    op.create_index(
        "ix_crawler_tasks_claim",
        "crawler_tasks",
        ["execution_id", "priority", "seq"],
        unique=False,
        postgresql_where=sa.text("status IN ('PUBLISHED', 'RETRY')"),
    )
    op.create_index(
        "ix_crawler_tasks_leases",
        "crawler_tasks",
        ["lease_expires_at"],
        unique=False,
        postgresql_where=sa.text("status = 'IN_PROGRESS'"),
    )
    op.create_index(
        "ix_crawler_tasks_open_items",
        "crawler_tasks",
        ["execution_id", "item_no"],
        unique=False,
        postgresql_where=sa.text("status IN ('WAITING', 'PUBLISHED', 'IN_PROGRESS', 'RETRY')"),
    )
    op.create_index(
        op.f("ix_crawler_tasks_seller_id_created_at"), "crawler_tasks", ["seller_id", "created_at"], unique=False
    )
    op.create_index(op.f("ix_crawler_tasks_status_created_at"), "crawler_tasks", ["status", "created_at"], unique=False)
    op.create_table(
        "product_change_sets",
        sa.Column("change_set_id", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("seller_id", sa.Text(), nullable=False),
        sa.Column("item_no", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("life_cycle", sa.Text(), nullable=False),
        sa.Column("change_types", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("changes", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("product_data", sa.Text(), nullable=True),
        sa.Column("execution_id", sa.Uuid(), nullable=False),
        sa.Column("detected_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint(
            "(life_cycle = 'DELETED') = (product_data IS NULL)", name=op.f("ck_product_change_sets_data_unless_deleted")
        ),
        sa.CheckConstraint(
            "life_cycle IN ('CREATED', 'UPDATED', 'DELETED', 'RESTORED')",
            name=op.f("ck_product_change_sets_life_cycle_known"),
        ),
        sa.CheckConstraint("version > 0", name=op.f("ck_product_change_sets_version_positive")),
        sa.PrimaryKeyConstraint("change_set_id", name=op.f("pk_product_change_sets")),
        sa.UniqueConstraint(
            "seller_id", "item_no", "version", name=op.f("uq_product_change_sets_seller_id_item_no_version")
        ),
    )
    op.create_index(op.f("ix_product_change_sets_execution_id"), "product_change_sets", ["execution_id"], unique=False)
    op.create_index(
        op.f("ix_product_change_sets_item_no_version"), "product_change_sets", ["item_no", "version"], unique=False
    )
    op.create_index(
        op.f("ix_product_change_sets_seller_id_detected_at"),
        "product_change_sets",
        ["seller_id", "detected_at"],
        unique=False,
    )
    op.create_table(
        "product_outbox",
        sa.Column("outbox_id", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("event_id", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("seller_id", sa.Text(), nullable=False),
        sa.Column("item_no", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("event_type", sa.Text(), nullable=False),
        sa.Column("idempotency_key", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("retry_count", sa.SmallInteger(), server_default="0", nullable=False),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("next_attempt_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("lease_owner", sa.Text(), nullable=True),
        sa.Column("lease_no", sa.Integer(), server_default="0", nullable=False),
        sa.Column("lease_expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("superseded_by", sa.Uuid(), nullable=True),
        sa.Column("last_status", sa.SmallInteger(), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("occurred_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("completed_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "(status = 'SENDING') = (lease_owner IS NOT NULL)", name=op.f("ck_product_outbox_lease_while_sending")
        ),
        sa.CheckConstraint(
            "event_type IN ('PRODUCT_CREATED', 'PRODUCT_UPDATED', 'PRODUCT_DELETED')",
            name=op.f("ck_product_outbox_event_type_known"),
        ),
        sa.CheckConstraint(
            "status IN ('WAITING', 'SENDING', 'COMPLETED', 'FAILED')", name=op.f("ck_product_outbox_status_known")
        ),
        sa.ForeignKeyConstraint(
            ["superseded_by"], ["product_outbox.outbox_id"], name=op.f("fk_product_outbox_superseded_by")
        ),
        sa.PrimaryKeyConstraint("outbox_id", name=op.f("pk_product_outbox")),
        sa.UniqueConstraint("event_id", name=op.f("uq_product_outbox_event_id")),
        sa.UniqueConstraint("idempotency_key", name=op.f("uq_product_outbox_idempotency_key")),
        sa.UniqueConstraint(
            "seller_id", "item_no", "version", name=op.f("uq_product_outbox_seller_id_item_no_version")
        ),
    )
    op.create_index(
        "ix_product_outbox_due",
        "product_outbox",
        ["next_attempt_at"],
        unique=False,
        postgresql_where=sa.text("status = 'WAITING'"),
    )
    op.create_index(
        op.f("ix_product_outbox_status_created_at"), "product_outbox", ["status", "created_at"], unique=False
    )
    op.create_index(
        "uq_product_outbox_one_in_flight",
        "product_outbox",
        ["seller_id", "item_no"],
        unique=True,
        postgresql_where=sa.text("status = 'SENDING'"),
    )
    op.create_table(
        "sellers",
        sa.Column("seller_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("interval_amount", sa.SmallInteger(), nullable=False),
        sa.Column("interval_unit", sa.Text(), nullable=False),
        sa.Column("total_product_count", sa.Integer(), server_default="0", nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint(
            "(interval_unit = 'DAYS' AND interval_amount BETWEEN 1 AND 30)"
            " OR (interval_unit = 'HOURS' AND interval_amount BETWEEN 1 AND 23)",
            name=op.f("ck_sellers_interval_in_range"),
        ),
        sa.CheckConstraint("btrim(seller_id) <> ''", name=op.f("ck_sellers_id_not_blank")),
        sa.CheckConstraint("status IN ('ACTIVE', 'INACTIVE')", name=op.f("ck_sellers_status_known")),
        sa.CheckConstraint("total_product_count >= 0", name=op.f("ck_sellers_count_not_negative")),
        sa.PrimaryKeyConstraint("seller_id", name=op.f("pk_sellers")),
    )
    op.create_index(op.f("ix_sellers_status"), "sellers", ["status"], unique=False)
    op.create_table(
        "crawling_schedules",
        sa.Column("schedule_id", sa.Uuid(), nullable=False),
        sa.Column("seller_id", sa.Text(), nullable=False),
        sa.Column("rule_name", sa.Text(), nullable=False),
        sa.Column("expression", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("next_due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_triggered_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint(
            "status IN ('ACTIVE', 'INACTIVE', 'FAILED')", name=op.f("ck_crawling_schedules_status_known")
        ),
        sa.ForeignKeyConstraint(["seller_id"], ["sellers.seller_id"], name=op.f("fk_crawling_schedules_seller_id")),
        sa.PrimaryKeyConstraint("schedule_id", name=op.f("pk_crawling_schedules")),
        sa.UniqueConstraint("rule_name", name=op.f("uq_crawling_schedules_rule_name")),
        sa.UniqueConstraint("seller_id", name=op.f("uq_crawling_schedules_seller_id")),
    )
    op.create_index(
        "ix_crawling_schedules_due",
        "crawling_schedules",
        ["next_due_at"],
        unique=False,
        postgresql_where=sa.text("status = 'ACTIVE'"),
    )
    op.create_table(
        "deletion_holds",
        sa.Column("hold_id", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("seller_id", sa.Text(), nullable=False),
        sa.Column("execution_id", sa.Uuid(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("live_count", sa.Integer(), nullable=False),
        sa.Column("item_nos", postgresql.ARRAY(sa.BigInteger()), nullable=False),
        sa.Column("opened_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("closed_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "status IN ('OPEN', 'APPROVED', 'REJECTED', 'CLOSED')", name=op.f("ck_deletion_holds_status_known")
        ),
        sa.ForeignKeyConstraint(["seller_id"], ["sellers.seller_id"], name=op.f("fk_deletion_holds_seller_id")),
        sa.PrimaryKeyConstraint("hold_id", name=op.f("pk_deletion_holds")),
    )
    op.create_index(
        "uq_deletion_holds_one_open_per_seller",
        "deletion_holds",
        ["seller_id"],
        unique=True,
        postgresql_where=sa.text("status = 'OPEN'"),
    )
    op.create_table(
        "product_raw_data",
        sa.Column("raw_id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("seller_id", sa.Text(), nullable=False),
        sa.Column("execution_id", sa.Uuid(), nullable=False),
        sa.Column("task_id", sa.Uuid(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("item_no", sa.BigInteger(), nullable=True),
        sa.Column("page_no", sa.Integer(), nullable=True),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("attempts", sa.SmallInteger(), server_default="0", nullable=False),
        sa.Column("error_code", sa.Text(), nullable=True),
        sa.Column("error_text", sa.Text(), nullable=True),
        sa.Column("fetched_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("processed_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "source IN ('MINISHOP', 'PRODUCT_DETAIL', 'PRODUCT_OPTION')", name=op.f("ck_product_raw_data_source_known")
        ),
        sa.CheckConstraint(
            "status IN ('PENDING', 'PROCESSED', 'FAILED')", name=op.f("ck_product_raw_data_status_known")
        ),
        sa.ForeignKeyConstraint(["seller_id"], ["sellers.seller_id"], name=op.f("fk_product_raw_data_seller_id")),
        sa.PrimaryKeyConstraint("raw_id", name=op.f("pk_product_raw_data")),
    )
    op.create_index(
        "ix_product_raw_data_pending",
        "product_raw_data",
        ["seller_id", "source", "raw_id"],
        unique=False,
        postgresql_where=sa.text("status = 'PENDING'"),
    )
    op.create_index(
        "ix_product_raw_data_pending_items",
        "product_raw_data",
        ["seller_id", "item_no"],
        unique=False,
        postgresql_where=sa.text("status = 'PENDING'"),
    )
    op.create_index(
        op.f("ix_product_raw_data_seller_id_fetched_at"), "product_raw_data", ["seller_id", "fetched_at"], unique=False
    )
    op.create_index(
        op.f("ix_product_raw_data_status_fetched_at"), "product_raw_data", ["status", "fetched_at"], unique=False
    )
    op.create_table(
        "products",
        sa.Column("product_id", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("seller_id", sa.Text(), nullable=False),
        sa.Column("item_no", sa.BigInteger(), nullable=False),
        sa.Column("minishop_data_hash", sa.Text(), nullable=True),
        sa.Column("detail_data_hash", sa.Text(), nullable=True),
        sa.Column("option_data_hash", sa.Text(), nullable=True),
        sa.Column("minishop_data", sa.Text(), nullable=True),
        sa.Column("detail_data", sa.Text(), nullable=True),
        sa.Column("option_data", sa.Text(), nullable=True),
        sa.Column("data", sa.Text(), nullable=True),
        sa.Column("data_hash", sa.Text(), nullable=True),
        sa.Column("published_hash", sa.Text(), nullable=True),
        sa.Column(
            "complete",
            sa.Boolean(),
            sa.Computed(
                "minishop_data_hash IS NOT NULL AND detail_data_hash IS NOT NULL AND option_data_hash IS NOT NULL",
                persisted=True,
            ),
            nullable=False,
        ),
        sa.Column("version", sa.Integer(), server_default="0", nullable=False),
        sa.Column("delivered_version", sa.Integer(), server_default="0", nullable=False),
        sa.Column("absent_sweeps", sa.SmallInteger(), server_default="0", nullable=False),
        sa.Column("last_seen_execution_id", sa.Uuid(), nullable=True),
        sa.Column("last_seen_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("delivered_version <= version", name=op.f("ck_products_delivered_within_version")),
        sa.CheckConstraint("item_no > 0", name=op.f("ck_products_item_positive")),
        sa.ForeignKeyConstraint(["seller_id"], ["sellers.seller_id"], name=op.f("fk_products_seller_id")),
        sa.PrimaryKeyConstraint("product_id", name=op.f("pk_products")),
        sa.UniqueConstraint("seller_id", "item_no", name=op.f("uq_products_seller_id_item_no")),
    )
    op.create_index(op.f("ix_products_item_no"), "products", ["item_no"], unique=False)
    op.create_index(op.f("ix_products_seller_id_complete"), "products", ["seller_id", "complete"], unique=False)
    op.create_index(
        "ix_products_unpublished",
        "products",
        ["seller_id", "item_no"],
        unique=False,
        postgresql_where=sa.text(
            "complete AND data_hash IS DISTINCT FROM published_hash"
            " AND (deleted_at IS NULL OR last_seen_execution_id IS NOT NULL)"
        ),
    )
    op.create_table(
        "crawling_schedule_executions",
        sa.Column("execution_id", sa.Uuid(), nullable=False),
        sa.Column("seller_id", sa.Text(), nullable=False),
        sa.Column("schedule_id", sa.Uuid(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("triggered_by", sa.Text(), nullable=False),
        sa.Column("task_month", sa.Date(), nullable=False),
        sa.Column("full_refetch", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("product_limit", sa.Integer(), nullable=True),
        sa.Column("total_tasks", sa.Integer(), server_default="0", nullable=False),
        sa.Column("completed_tasks", sa.Integer(), server_default="0", nullable=False),
        sa.Column("failed_tasks", sa.Integer(), server_default="0", nullable=False),
        sa.Column("requests", sa.Integer(), server_default="0", nullable=False),
        sa.Column("throttled", sa.Integer(), server_default="0", nullable=False),
        sa.Column("listed_count", sa.Integer(), nullable=True),
        sa.Column("sweep_status", sa.Text(), nullable=False),
        sa.Column("slice_no", sa.Integer(), server_default="0", nullable=False),
        sa.Column("error_code", sa.Text(), nullable=True),
        sa.Column("error_text", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint(
            "status IN ('PENDING', 'RUNNING', 'PAUSED', 'COMPLETED', 'FAILED', 'CANCELLED')",
            name=op.f("ck_crawling_schedule_executions_status_known"),
        ),
        sa.CheckConstraint(
            "sweep_status IN ('PENDING', 'COMPLETE', 'INCOMPLETE')",
            name=op.f("ck_crawling_schedule_executions_sweep_status_known"),
        ),
        sa.CheckConstraint(
            "completed_tasks + failed_tasks <= total_tasks",
            name=op.f("ck_crawling_schedule_executions_outcomes_within_total"),
        ),
        sa.CheckConstraint("product_limit > 0", name=op.f("ck_crawling_schedule_executions_limit_positive")),
        sa.ForeignKeyConstraint(
            ["schedule_id"],
            ["crawling_schedules.schedule_id"],
            name=op.f("fk_crawling_schedule_executions_schedule_id"),
        ),
        sa.ForeignKeyConstraint(
            ["seller_id"], ["sellers.seller_id"], name=op.f("fk_crawling_schedule_executions_seller_id")
        ),
        sa.PrimaryKeyConstraint("execution_id", name=op.f("pk_crawling_schedule_executions")),
    )
    op.create_index(
        op.f("ix_crawling_schedule_executions_seller_id_started_at"),
        "crawling_schedule_executions",
        ["seller_id", "started_at"],
        unique=False,
    )
    op.create_index(
        op.f("ix_crawling_schedule_executions_status"), "crawling_schedule_executions", ["status"], unique=False
    )
    op.create_index(
        "uq_executions_one_open_per_seller",
        "crawling_schedule_executions",
        ["seller_id"],
        unique=True,
        postgresql_where=sa.text("status IN ('PENDING', 'RUNNING', 'PAUSED')"),
    )
    op.create_table(
        "scheduler_outbox",
        sa.Column("outbox_id", sa.Uuid(), nullable=False),
        sa.Column("schedule_id", sa.Uuid(), nullable=False),
        sa.Column("event_type", sa.Text(), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("retry_count", sa.SmallInteger(), server_default="0", nullable=False),
        sa.Column("next_attempt_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("lease_owner", sa.Text(), nullable=True),
        sa.Column("lease_no", sa.Integer(), server_default="0", nullable=False),
        sa.Column("lease_expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("completed_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "(status = 'SENDING') = (lease_owner IS NOT NULL)", name=op.f("ck_scheduler_outbox_lease_while_sending")
        ),
        sa.CheckConstraint(
            "event_type IN ('SCHEDULE_REGISTERED', 'SCHEDULE_UPDATED', 'SCHEDULE_DEACTIVATED')",
            name=op.f("ck_scheduler_outbox_event_type_known"),
        ),
        sa.CheckConstraint(
            "status IN ('WAITING', 'SENDING', 'COMPLETED', 'FAILED')", name=op.f("ck_scheduler_outbox_status_known")
        ),
        sa.CheckConstraint("payload IS JSON", name=op.f("ck_scheduler_outbox_payload_is_json")),
        sa.ForeignKeyConstraint(
            ["schedule_id"], ["crawling_schedules.schedule_id"], name=op.f("fk_scheduler_outbox_schedule_id")
        ),
        sa.PrimaryKeyConstraint("outbox_id", name=op.f("pk_scheduler_outbox")),
    )
    op.create_index(
        op.f("ix_scheduler_outbox_schedule_id_created_at"),
        "scheduler_outbox",
        ["schedule_id", "created_at"],
        unique=False,
    )
    op.create_index(
        op.f("ix_scheduler_outbox_status_created_at"), "scheduler_outbox", ["status", "created_at"], unique=False
    )

    # Rows of a month that has no partition yet are stored here until maintenance moves them.
    op.execute("CREATE TABLE crawler_tasks_default PARTITION OF crawler_tasks DEFAULT")


def downgrade() -> None:
    for table in (
        "deletion_holds",
        "circuit_breakers",
        "scheduler_outbox",
        "product_outbox",
        "product_change_sets",
        "products",
        "product_raw_data",
        "crawler_tasks",
        "crawling_schedule_executions",
        "crawling_schedules",
        "sellers",
    ):
        op.drop_table(table)
    op.execute("DROP SEQUENCE crawler_task_seq")
