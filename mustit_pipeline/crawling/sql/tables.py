"""Executions, their slices and their tasks; what the recrawl policy has learnt."""

from dataclasses import fields

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    Double,
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

from mustit_pipeline.domain.recrawl.learning import SellerEvidence
from mustit_pipeline.domain.states import (
    ExecutionKind,
    ExecutionStatus,
    SliceOutcome,
    SweepStatus,
    TaskStatus,
    TaskType,
)
from mustit_pipeline.foundation.tables import metadata, one_of, timestamp

OPEN_EXECUTION = "status IN ('PENDING', 'RUNNING', 'PAUSED')"

WAITING_TASK = "status = 'WAITING'"
# A crawl that light crawls give way to; a PAUSED one asks for nothing. By the index of open executions, which are few.
DUE_OPEN = f"""EXISTS (SELECT FROM crawling_schedule_executions due
                       WHERE due.status IN ('PENDING', 'RUNNING') AND due.kind = '{ExecutionKind.DUE.value}')"""

# An execution `e` whose tasks are worked on now.
WORKED_ON = f"e.status = 'RUNNING' AND (e.kind = '{ExecutionKind.DUE.value}' OR NOT {DUE_OPEN})"

CLAIMABLE_TASK = "status IN ('PUBLISHED', 'RETRY')"

# A time after -infinity is true for every row: only a statement with this condition can use the index, so no other one,
# about one seller, reads all of it.
BY_CREATION = "created_at > '-infinity'"
BROKEN_OFF = "status IN ('FAILED', 'CANCELLED') AND updated_at > '-infinity'"

crawling_schedule_executions = Table(
    "crawling_schedule_executions",
    metadata,
    Column("execution_id", Uuid, primary_key=True),
    Column("seller_id", Text, ForeignKey("sellers.seller_id"), nullable=False),
    Column("schedule_id", Uuid, ForeignKey("crawling_schedules.schedule_id"), nullable=False),
    Column("kind", Text, nullable=False, server_default=ExecutionKind.DUE.value),
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
    # Complete products of its seller as it was completed.
    Column("complete_count", Integer),
    Column("sweep_status", Text, nullable=False),
    Column("slice_no", Integer, nullable=False, server_default="0"),
    Column("drift", ARRAY(Text), nullable=False, server_default=text("'{}'")),
    Column("error_code", Text),
    Column("error_text", Text),
    timestamp("created_at", default=True),
    timestamp("started_at", nullable=True),
    timestamp("ended_at", nullable=True),
    timestamp("updated_at", default=True),
    one_of("kind", ExecutionKind),
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
    Index("ix_crawler_tasks_leases", "lease_expires_at", postgresql_where=text("lease_expires_at IS NOT NULL")),
    postgresql_partition_by="RANGE (task_month)",
)

# Details and options are learnt apart.
LEARNT_KINDS = ("detail", "option")


def _number(name: str, default: str = "0") -> Column[float]:
    return Column(name, Double, nullable=False, server_default=default)


# What the policy knows of each product. Every fetch writes its row, so the row is narrow, and only its key is indexed:
# each write is a HOT update. A product without a row was never fetched.
recrawl_products = Table(
    "recrawl_products",
    metadata,
    Column("item_no", BigInteger, nullable=False),
    *(
        column
        for kind in LEARNT_KINDS
        for column in (
            # The last fetch, the changes found in so many hours, and the listing's signals since the last fetch.
            timestamp(f"{kind}_fetched_at", nullable=True),
            _number(f"{kind}_changes"),
            _number(f"{kind}_hours"),
            _number(f"{kind}_signals"),
            # When its task failed for good, until a fetch succeeds: light crawls leave it alone for a while.
            timestamp(f"{kind}_failed_at", nullable=True),
        )
    ),
    timestamp("changed_at", nullable=True),
    _number("boost", "1"),
    # Under which rules the last fetch was read: under other rules an unlike hash is no change.
    *(Column(f"{kind}_reading", SmallInteger, nullable=False, server_default="0") for kind in LEARNT_KINDS),
    Column("sold_out", Boolean, nullable=False, server_default=text("false")),
    Column("seller_id", Text, nullable=False),
    PrimaryKeyConstraint("seller_id", "item_no"),
    CheckConstraint("boost > 0", name="boost_positive"),
    postgresql_with={"fillfactor": "80"},
)

# What all fetches of a seller's products say together: its change rates, and how far its listing can be trusted. And
# what its last sweep came to: choosing among all sellers then needs no product.
recrawl_sellers = Table(
    "recrawl_sellers",
    metadata,
    Column("seller_id", Text, ForeignKey("sellers.seller_id"), primary_key=True),
    *(_number(f"{kind}_{evidence.name}") for kind in LEARNT_KINDS for evidence in fields(SellerEvidence)),
    timestamp("learnt_at", nullable=True),
    _number("boost", "1"),
    timestamp("swept_at", nullable=True),
    # Hours from one sweep to the next, lately.
    _number("look_hours", "1"),
    Column("products", Integer, nullable=False, server_default="0"),
    # Products by the change rate of each of their sources.
    *(Column(f"{kind}_rates", ARRAY(Integer), nullable=False, server_default=text("'{}'")) for kind in LEARNT_KINDS),
    # When the source was fetched that is oldest since the last crawl.
    timestamp("oldest_at", nullable=True),
    CheckConstraint("boost > 0", name="boost_positive"),
    postgresql_with={"fillfactor": "50"},
)

# One row: the terms on which all crawls spend the pool's requests.
recrawl_pool = Table(
    "recrawl_pool",
    metadata,
    Column("single", Boolean, primary_key=True, server_default=text("true")),
    _number("price"),
    # The age that is kept; the promise, or more where it is broken.
    _number("kept_age"),
    Column("promise_broken", Boolean, nullable=False),
    _number("freshness"),
    # Requests of the pool, those that would keep the promise, and the sources that share them.
    _number("requests_per_hour"),
    _number("needed_per_hour"),
    _number("sources"),
    timestamp("judged_at"),
    # Requests that crawls have planned since then.
    _number("planned"),
    CheckConstraint("single", name="single_row"),
)
