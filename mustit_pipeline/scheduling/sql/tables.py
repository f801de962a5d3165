"""The table of messages that asked for crawls."""

from sqlalchemy import CheckConstraint, Column, ForeignKey, Index, Table, Text, Uuid, text

from mustit_pipeline.domain.trigger import ParkReason
from mustit_pipeline.foundation.tables import metadata, one_of, timestamp

trigger_messages = Table(
    "trigger_messages",
    metadata,
    Column("queue", Text, primary_key=True),
    Column("message_id", Text, primary_key=True),
    # The execution that it opened or joined; or why it is parked, and its body.
    Column("execution_id", Uuid, ForeignKey("crawling_schedule_executions.execution_id")),
    Column("reason", Text),
    Column("body", Text),
    timestamp("received_at"),
    timestamp("dismissed_at", nullable=True),
    one_of("reason", ParkReason),
    CheckConstraint("num_nonnulls(execution_id, reason) <= 1", name="taken_or_parked"),
    CheckConstraint("(reason IS NULL) = (body IS NULL)", name="body_while_parked"),
    CheckConstraint("dismissed_at IS NULL OR reason IS NOT NULL", name="dismissed_if_parked"),
    Index(None, "received_at"),
    Index(
        "ix_trigger_messages_parked",
        "received_at",
        postgresql_where=text("reason IS NOT NULL AND dismissed_at IS NULL"),
    ),
)
