"""The tables of sellers and their crawls, as SQLAlchemy Core sees them; the migrations create them."""

from enum import StrEnum

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
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
from sqlalchemy.dialects.postgresql import ARRAY

from mustit_pipeline.domain.states import (
    ExecutionStatus,
    OutboxStatus,
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
OPEN_TASK = "status IN ('WAITING', 'PUBLISHED', 'IN_PROGRESS', 'RETRY')"

# True of every row. Only a statement that states it too goes by this index, and no other is tempted to read all of it.
BY_CREATION = "created_at > '-infinity'"


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
    Column("failed_plans", Integer, nullable=False, server_default="0"),
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
    Column("skipped_items", Integer, nullable=False, server_default="0"),
    Column("foreign_items", Integer, nullable=False, server_default="0"),
    Column("sweep_status", Text, nullable=False),
    Column("slice_no", Integer, nullable=False, server_default="0"),
    Column("drift", ARRAY(Text), nullable=False, server_default=text("'{}'")),
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
    Index("ix_executions_created", "created_at", postgresql_where=text(BY_CREATION)),
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
    PrimaryKeyConstraint("task_id", "task_month"),
    UniqueConstraint("execution_id", "task_key", "task_month"),
    one_of("status", TaskStatus),
    one_of("task_type", TaskType),
    CheckConstraint("(status = 'IN_PROGRESS') = (lease_owner IS NOT NULL)", name="lease_while_in_progress"),
    CheckConstraint("(task_type = 'MINISHOP') = (page_no IS NOT NULL)", name="page_for_listings"),
    CheckConstraint("(task_type = 'MINISHOP') = (item_no IS NULL)", name="item_for_products"),
    Index("ix_crawler_tasks_claim", "execution_id", "priority", "seq", postgresql_where=text(CLAIMABLE_TASK)),
    Index("ix_crawler_tasks_open_items", "execution_id", "item_no", postgresql_where=text(OPEN_TASK)),
    Index("ix_crawler_tasks_leases", "lease_expires_at", postgresql_where=text("lease_expires_at IS NOT NULL")),
    postgresql_partition_by="RANGE (task_month)",
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
    # In the order of commits for one schedule, whatever the clocks of those who changed it said.
    Column("seq", BigInteger, Identity(always=True), nullable=False),
    Column("superseded_by", Uuid),
    one_of("status", OutboxStatus),
    one_of("event_type", ScheduleEventType),
    CheckConstraint("payload IS JSON", name="payload_is_json"),
    CheckConstraint("(status = 'SENDING') = (lease_owner IS NOT NULL)", name="lease_while_sending"),
    Index(None, "schedule_id", "created_at"),
    Index(None, "schedule_id", "seq"),
    Index(None, "status", "created_at"),
    Index("uq_scheduler_outbox_one_in_flight", "schedule_id", unique=True, postgresql_where=text("status = 'SENDING'")),
)
