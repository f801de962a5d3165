"""Tables of sellers, their schedules, and the changes to be sent to EventBridge."""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Identity,
    Index,
    Integer,
    SmallInteger,
    Table,
    Text,
    Uuid,
    text,
)

from mustit_pipeline.domain.states import OutboxStatus, ScheduleEventType, ScheduleStatus, SellerStatus
from mustit_pipeline.foundation.tables import metadata, one_of, timestamp

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
    # In the order of commits for one schedule, whatever the hosts' clocks said.
    Column("seq", BigInteger, Identity(always=True), nullable=False),
    Column("superseded_by", Uuid),
    one_of("status", OutboxStatus),
    one_of("event_type", ScheduleEventType),
    CheckConstraint("payload IS JSON", name="payload_is_json"),
    CheckConstraint("(status = 'SENDING') = (lease_owner IS NOT NULL)", name="lease_while_sending"),
    Index(None, "schedule_id", "seq"),
    Index(None, "status", "created_at"),
    Index("uq_scheduler_outbox_one_in_flight", "schedule_id", unique=True, postgresql_where=text("status = 'SENDING'")),
)
