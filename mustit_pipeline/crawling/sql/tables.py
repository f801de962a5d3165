"""Executions, their slices and their tasks."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    ForeignKey,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Sequence,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY

from mustit_pipeline.domain.states import ExecutionStatus, SliceOutcome, SweepStatus, TaskStatus, TaskType
from mustit_pipeline.foundation.tables import metadata, one_of, timestamp

OPEN_EXECUTION = "status IN ('PENDING', 'RUNNING', 'PAUSED')"

WAITING_TASK = "status = 'WAITING'"

CLAIMABLE_TASK = "status IN ('PUBLISHED', 'RETRY')"

OPEN_TASK = "status IN ('WAITING', 'PUBLISHED', 'IN_PROGRESS', 'RETRY')"

# True for every row: only a statement with this condition can use the index, so no other one reads all of it.
BY_CREATION = "created_at > '-infinity'"
BROKEN_OFF = "status IN ('FAILED', 'CANCELLED')"

crawling_schedule_executions = Table(
    "crawling_schedule_executions",
    metadata,
    Column("execution_id", Uuid, primary_key=True),
    Column("seller_id", Text, ForeignKey("sellers.seller_id"), nullable=False),
    Column("schedule_id", Uuid, ForeignKey("crawling_schedules.schedule_id"), nullable=False),
    Column("status", Text, nullable=False),
    Column("triggered_by", Text, nullable=False),
    # Set once per execution; every task row has it, because the partition key is part of each unique key.
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
    # Products that its sweep has seen, counted once at its end.
    Column("seen_count", Integer),
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
    Index("ix_executions_broken_off", "status", "created_at", "execution_id", postgresql_where=text(BROKEN_OFF)),
)

crawling_slices = Table(
    "crawling_slices",
    metadata,
    # A run works on one slice of one execution; runs of `mustit crawl` and of the UI have no slice number.
    Column("run_id", Text, primary_key=True),
    Column("execution_id", Uuid, ForeignKey("crawling_schedule_executions.execution_id"), nullable=False),
    Column("outcome", Text, nullable=False),
    timestamp("ended_at"),
    Column("error", Text),
    one_of("outcome", SliceOutcome),
    Index(None, "execution_id", "ended_at"),
    Index(None, "ended_at"),
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
    # Empty unless SQS carries the tasks.
    Index("ix_crawler_tasks_waiting", "execution_id", "priority", "seq", postgresql_where=text(WAITING_TASK)),
    Index("ix_crawler_tasks_open_items", "execution_id", "item_no", postgresql_where=text(OPEN_TASK)),
    Index("ix_crawler_tasks_leases", "lease_expires_at", postgresql_where=text("lease_expires_at IS NOT NULL")),
    postgresql_partition_by="RANGE (task_month)",
)
