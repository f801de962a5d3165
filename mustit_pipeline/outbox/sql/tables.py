"""The table of versions to be sent to the product server."""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    func,
    text,
)

from mustit_pipeline.domain.states import OutboxStatus, ProductEventType
from mustit_pipeline.foundation.tables import BY_TIME, SELLER_BY_TIME, metadata, one_of, timestamp

# True for every row: a statement about a state alone does not contain it, and so cannot go through this whole index.
OF_SELLER = "item_no > 0"

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
    # The first of the counted failures.
    timestamp("failing_since", nullable=True),
    # The first failure that was charged to the product server or our credential; if another row is accepted after it,
    # the next failure is charged to the row.
    timestamp("doubted_since", nullable=True),
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
    # At most one in flight per product.
    Index(
        "uq_product_outbox_one_in_flight",
        "seller_id",
        "item_no",
        unique=True,
        postgresql_where=text("status = 'SENDING'"),
    ),
    # Failing rows have their own index: however many there are, the claim of fresh rows does not have to skip them.
    Index(
        "ix_product_outbox_due_fresh",
        "next_attempt_at",
        postgresql_where=text("status = 'WAITING' AND failing_since IS NULL"),
    ),
    Index(
        "ix_product_outbox_due_failing",
        "next_attempt_at",
        postgresql_where=text("status = 'WAITING' AND failing_since IS NOT NULL"),
    ),
    Index(
        "ix_product_outbox_delivered",
        "completed_at",
        postgresql_where=text("status = 'COMPLETED' AND superseded_by IS NULL"),
    ),
    # Many rows have the same time: the id says where a page of them ends.
    Index("ix_product_outbox_states", "status", "created_at", "outbox_id", postgresql_where=text(BY_TIME)),
    Index(
        "ix_product_outbox_of_seller",
        text(SELLER_BY_TIME),
        "status",
        "created_at",
        "outbox_id",
        postgresql_where=text(OF_SELLER),
    ),
)
