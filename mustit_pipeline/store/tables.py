"""The business tables, as SQLAlchemy Core sees them; the migrations create them."""

from enum import StrEnum

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Computed,
    Date,
    DateTime,
    ForeignKey,
    Identity,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Sequence,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from mustit_pipeline.domain.states import (
    ExecutionStatus,
    LifeCycle,
    OutboxStatus,
    ProductEventType,
    RawStatus,
    ScheduleEventType,
    ScheduleStatus,
    SellerStatus,
    SweepStatus,
    TaskStatus,
    TaskType,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)

OPEN_EXECUTION = "status IN ('PENDING', 'RUNNING', 'PAUSED')"
CLAIMABLE_TASK = "status IN ('PUBLISHED', 'RETRY')"
UNPUBLISHED_PRODUCT = (
    "complete AND data_hash IS DISTINCT FROM published_hash"
    " AND (deleted_at IS NULL OR last_seen_execution_id IS NOT NULL)"
)
OPEN_TASK = "status IN ('WAITING', 'PUBLISHED', 'IN_PROGRESS', 'RETRY')"


def timestamp(name: str, *, nullable: bool = False, default: bool = False) -> Column[object]:
    """A point in time; the database's clock fills it where it has a default."""
    return Column(name, DateTime(timezone=True), nullable=nullable, server_default=func.now() if default else None)


def one_of(column: str, states: type[StrEnum]) -> CheckConstraint:
    """The column takes the states of the domain, and no other."""
    values = ", ".join(f"'{state.value}'" for state in states)
    return CheckConstraint(f"{column} IN ({values})", name=f"{column}_known")


sellers = Table(
    "sellers",
    metadata,
    Column("seller_id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("interval_amount", SmallInteger, nullable=False),
    Column("interval_unit", Text, nullable=False),
    Column("total_product_count", Integer, nullable=False, server_default="0"),
    timestamp("created_at", default=True),
    timestamp("updated_at", default=True),
    one_of("status", SellerStatus),
    CheckConstraint("btrim(seller_id) <> ''", name="id_not_blank"),
    CheckConstraint(
        "(interval_unit = 'DAYS' AND interval_amount BETWEEN 1 AND 30)"
        " OR (interval_unit = 'HOURS' AND interval_amount BETWEEN 1 AND 23)",
        name="interval_in_range",
    ),
    CheckConstraint("total_product_count >= 0", name="count_not_negative"),
    Index(None, "status"),
)

crawling_schedules = Table(
    "crawling_schedules",
    metadata,
    Column("schedule_id", Uuid, primary_key=True),
    Column("seller_id", Text, ForeignKey("sellers.seller_id"), nullable=False, unique=True),
    Column("rule_name", Text, nullable=False, unique=True),
    Column("expression", Text, nullable=False),
    Column("status", Text, nullable=False),
    timestamp("next_due_at"),
    timestamp("last_triggered_at", nullable=True),
    timestamp("created_at", default=True),
    timestamp("updated_at", default=True),
    one_of("status", ScheduleStatus),
    Index("ix_crawling_schedules_due", "next_due_at", postgresql_where=text("status = 'ACTIVE'")),
)

crawling_schedule_executions = Table(
    "crawling_schedule_executions",
    metadata,
    Column("execution_id", Uuid, primary_key=True),
    Column("seller_id", Text, ForeignKey("sellers.seller_id"), nullable=False),
    Column("schedule_id", Uuid, ForeignKey("crawling_schedules.schedule_id"), nullable=False),
    Column("status", Text, nullable=False),
    Column("triggered_by", Text, nullable=False),
    # Set once for the execution; every task row carries it, because the partition key is part of each unique key.
    Column("task_month", Date, nullable=False),
    Column("full_refetch", Boolean, nullable=False, server_default=text("false")),
    Column("product_limit", Integer),
    Column("total_tasks", Integer, nullable=False, server_default="0"),
    Column("completed_tasks", Integer, nullable=False, server_default="0"),
    Column("failed_tasks", Integer, nullable=False, server_default="0"),
    Column("requests", Integer, nullable=False, server_default="0"),
    Column("throttled", Integer, nullable=False, server_default="0"),
    Column("listed_count", Integer),
    Column("sweep_status", Text, nullable=False),
    Column("slice_no", Integer, nullable=False, server_default="0"),
    Column("error_code", Text),
    Column("error_text", Text),
    timestamp("created_at", default=True),
    timestamp("started_at", nullable=True),
    timestamp("ended_at", nullable=True),
    timestamp("updated_at", default=True),
    one_of("status", ExecutionStatus),
    one_of("sweep_status", SweepStatus),
    CheckConstraint("completed_tasks + failed_tasks <= total_tasks", name="outcomes_within_total"),
    CheckConstraint("product_limit > 0", name="limit_positive"),
    Index("uq_executions_one_open_per_seller", "seller_id", unique=True, postgresql_where=text(OPEN_EXECUTION)),
    Index(None, "seller_id", "started_at"),
    Index(None, "status"),
)

task_sequence = Sequence("crawler_task_seq", metadata=metadata)

crawler_tasks = Table(
    "crawler_tasks",
    metadata,
    Column("task_month", Date, nullable=False),
    Column("task_id", Uuid, nullable=False),
    Column("seq", BigInteger, nullable=False, server_default=task_sequence.next_value()),
    Column("execution_id", Uuid, nullable=False),
    Column("seller_id", Text, nullable=False),
    Column("task_type", Text, nullable=False),
    # The canonical identity of the call inside its execution: the same call is never queued twice.
    Column("task_key", Text, nullable=False),
    Column("item_no", BigInteger),
    Column("page_no", Integer),
    Column("probe", Boolean, nullable=False, server_default=text("false")),
    Column("request_url", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("priority", SmallInteger, nullable=False),
    Column("retry_count", SmallInteger, nullable=False, server_default="0"),
    Column("release_count", SmallInteger, nullable=False, server_default="0"),
    timestamp("available_at", default=True),
    Column("lease_owner", Text),
    Column("lease_no", Integer, nullable=False, server_default="0"),
    timestamp("lease_expires_at", nullable=True),
    Column("error_code", Text),
    Column("error_text", Text),
    timestamp("created_at", default=True),
    timestamp("published_at", nullable=True),
    timestamp("started_at", nullable=True),
    timestamp("completed_at", nullable=True),
    PrimaryKeyConstraint("task_month", "task_id"),
    UniqueConstraint("task_month", "execution_id", "task_key"),
    one_of("status", TaskStatus),
    one_of("task_type", TaskType),
    CheckConstraint("(status = 'IN_PROGRESS') = (lease_owner IS NOT NULL)", name="lease_while_in_progress"),
    CheckConstraint("(task_type = 'MINISHOP') = (page_no IS NOT NULL)", name="page_for_listings"),
    CheckConstraint("(task_type = 'MINISHOP') = (item_no IS NULL)", name="item_for_products"),
    Index("ix_crawler_tasks_claim", "execution_id", "priority", "seq", postgresql_where=text(CLAIMABLE_TASK)),
    Index("ix_crawler_tasks_open_items", "execution_id", "item_no", postgresql_where=text(OPEN_TASK)),
    Index("ix_crawler_tasks_leases", "lease_expires_at", postgresql_where=text("status = 'IN_PROGRESS'")),
    Index(None, "seller_id", "created_at"),
    Index(None, "status", "created_at"),
    postgresql_partition_by="RANGE (task_month)",
)

product_raw_data = Table(
    "product_raw_data",
    metadata,
    Column("raw_id", BigInteger, Identity(always=True), primary_key=True),
    Column("seller_id", Text, ForeignKey("sellers.seller_id"), nullable=False),
    Column("execution_id", Uuid, nullable=False),
    Column("task_id", Uuid, nullable=False),
    Column("source", Text, nullable=False),
    Column("item_no", BigInteger),
    Column("page_no", Integer),
    Column("body", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("attempts", SmallInteger, nullable=False, server_default="0"),
    Column("error_code", Text),
    Column("error_text", Text),
    timestamp("fetched_at", default=True),
    timestamp("processed_at", nullable=True),
    one_of("status", RawStatus),
    one_of("source", TaskType),
    Index("ix_product_raw_data_pending", "seller_id", "source", "raw_id", postgresql_where=text("status = 'PENDING'")),
    Index("ix_product_raw_data_pending_items", "seller_id", "item_no", postgresql_where=text("status = 'PENDING'")),
    Index(None, "seller_id", "fetched_at"),
    Index(None, "status", "fetched_at"),
)

products = Table(
    "products",
    metadata,
    Column("product_id", Uuid, primary_key=True, server_default=func.gen_random_uuid()),
    Column("seller_id", Text, ForeignKey("sellers.seller_id"), nullable=False),
    Column("item_no", BigInteger, nullable=False),
    Column("minishop_data_hash", Text),
    Column("detail_data_hash", Text),
    Column("option_data_hash", Text),
    # What each source said last, in canonical form: a source replaces a value only when its own has changed.
    Column("minishop_data", Text),
    Column("detail_data", Text),
    Column("option_data", Text),
    # The merged productData, and its hash; published_hash is that of the newest version.
    Column("data", Text),
    Column("data_hash", Text),
    Column("published_hash", Text),
    Column(
        "complete",
        Boolean,
        Computed(
            "minishop_data_hash IS NOT NULL AND detail_data_hash IS NOT NULL AND option_data_hash IS NOT NULL",
            persisted=True,
        ),
        nullable=False,
    ),
    Column("version", Integer, nullable=False, server_default="0"),
    # The newest version that the product server is known to have.
    Column("delivered_version", Integer, nullable=False, server_default="0"),
    Column("absent_sweeps", SmallInteger, nullable=False, server_default="0"),
    Column("last_seen_execution_id", Uuid),
    timestamp("last_seen_at", nullable=True),
    timestamp("deleted_at", nullable=True),
    timestamp("created_at", default=True),
    timestamp("updated_at", default=True),
    UniqueConstraint("seller_id", "item_no"),
    CheckConstraint("item_no > 0", name="item_positive"),
    CheckConstraint("delivered_version <= version", name="delivered_within_version"),
    Index(None, "item_no"),
    Index(None, "seller_id", "complete"),
    Index("ix_products_unpublished", "seller_id", "item_no", postgresql_where=text(UNPUBLISHED_PRODUCT)),
)

product_change_sets = Table(
    "product_change_sets",
    metadata,
    Column("change_set_id", Uuid, primary_key=True, server_default=func.gen_random_uuid()),
    Column("seller_id", Text, nullable=False),
    Column("item_no", BigInteger, nullable=False),
    Column("version", Integer, nullable=False),
    Column("life_cycle", Text, nullable=False),
    Column("change_types", ARRAY(Text), nullable=False),
    Column("changes", JSONB, nullable=False),
    # The whole product at this version, null once deleted: any two versions can be compared.
    Column("product_data", Text),
    Column("execution_id", Uuid, nullable=False),
    timestamp("detected_at", default=True),
    UniqueConstraint("seller_id", "item_no", "version"),
    one_of("life_cycle", LifeCycle),
    CheckConstraint("version > 0", name="version_positive"),
    CheckConstraint("(life_cycle = 'DELETED') = (product_data IS NULL)", name="data_unless_deleted"),
    Index(None, "seller_id", "detected_at"),
    Index(None, "execution_id"),
    Index(None, "item_no", "version"),
)

product_outbox = Table(
    "product_outbox",
    metadata,
    Column("outbox_id", Uuid, primary_key=True, server_default=func.gen_random_uuid()),
    Column("event_id", Uuid, nullable=False, server_default=func.gen_random_uuid(), unique=True),
    Column("seller_id", Text, nullable=False),
    Column("item_no", BigInteger, nullable=False),
    Column("version", Integer, nullable=False),
    Column("event_type", Text, nullable=False),
    Column("idempotency_key", Text, nullable=False, unique=True),
    Column("status", Text, nullable=False),
    Column("retry_count", SmallInteger, nullable=False, server_default="0"),
    Column("attempts", Integer, nullable=False, server_default="0"),
    timestamp("next_attempt_at", default=True),
    Column("lease_owner", Text),
    Column("lease_no", Integer, nullable=False, server_default="0"),
    timestamp("lease_expires_at", nullable=True),
    Column("superseded_by", Uuid, ForeignKey("product_outbox.outbox_id")),
    Column("last_status", SmallInteger),
    Column("last_error", Text),
    timestamp("occurred_at", default=True),
    timestamp("created_at", default=True),
    timestamp("completed_at", nullable=True),
    UniqueConstraint("seller_id", "item_no", "version"),
    one_of("status", OutboxStatus),
    one_of("event_type", ProductEventType),
    CheckConstraint("(status = 'SENDING') = (lease_owner IS NOT NULL)", name="lease_while_sending"),
    # One in flight per product, whoever tries.
    Index(
        "uq_product_outbox_one_in_flight",
        "seller_id",
        "item_no",
        unique=True,
        postgresql_where=text("status = 'SENDING'"),
    ),
    Index("ix_product_outbox_due", "next_attempt_at", postgresql_where=text("status = 'WAITING'")),
    Index(None, "status", "created_at"),
)

scheduler_outbox = Table(
    "scheduler_outbox",
    metadata,
    Column("outbox_id", Uuid, primary_key=True),
    Column("schedule_id", Uuid, ForeignKey("crawling_schedules.schedule_id"), nullable=False),
    Column("event_type", Text, nullable=False),
    Column("payload", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("retry_count", SmallInteger, nullable=False, server_default="0"),
    timestamp("next_attempt_at", default=True),
    Column("lease_owner", Text),
    Column("lease_no", Integer, nullable=False, server_default="0"),
    timestamp("lease_expires_at", nullable=True),
    Column("last_error", Text),
    timestamp("created_at", default=True),
    timestamp("completed_at", nullable=True),
    one_of("status", OutboxStatus),
    one_of("event_type", ScheduleEventType),
    CheckConstraint("payload IS JSON", name="payload_is_json"),
    CheckConstraint("(status = 'SENDING') = (lease_owner IS NOT NULL)", name="lease_while_sending"),
    Index(None, "schedule_id", "created_at"),
    Index(None, "status", "created_at"),
)

deletion_holds = Table(
    "deletion_holds",
    metadata,
    Column("hold_id", Uuid, primary_key=True, server_default=func.gen_random_uuid()),
    Column("seller_id", Text, ForeignKey("sellers.seller_id"), nullable=False),
    Column("execution_id", Uuid, nullable=False),
    Column("status", Text, nullable=False),
    Column("live_count", Integer, nullable=False),
    Column("item_nos", ARRAY(BigInteger), nullable=False),
    timestamp("opened_at", default=True),
    timestamp("closed_at", nullable=True),
    CheckConstraint("status IN ('OPEN', 'APPROVED', 'REJECTED', 'CLOSED')", name="status_known"),
    Index("uq_deletion_holds_one_open_per_seller", "seller_id", unique=True, postgresql_where=text("status = 'OPEN'")),
)

circuit_breakers = Table(
    "circuit_breakers",
    metadata,
    Column("name", Text, primary_key=True),
    Column("failures", Integer, nullable=False, server_default="0"),
    timestamp("open_until", nullable=True),
    timestamp("updated_at", default=True),
)
