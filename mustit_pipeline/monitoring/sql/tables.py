"""Tables of products compared with the marketplace, and of alerts."""

from sqlalchemy import BigInteger, CheckConstraint, Column, Index, Integer, Table, Text, Uuid, func, text
from sqlalchemy.dialects.postgresql import ARRAY

from mustit_pipeline.domain.states import TruthVerdict
from mustit_pipeline.foundation.tables import metadata, one_of, timestamp

truth_samples = Table(
    "truth_samples",
    metadata,
    Column("sample_id", Uuid, primary_key=True, server_default=func.gen_random_uuid()),
    Column("seller_id", Text, nullable=False),
    Column("item_no", BigInteger, nullable=False),
    Column("verdict", Text, nullable=False),
    # The hash of the marketplace's differing data: the catalog is wrong only if it is the same after the next crawl.
    Column("said_hash", Text),
    Column("difference", Text),
    timestamp("sampled_at"),
    timestamp("judged_at", nullable=True),
    one_of("verdict", TruthVerdict),
    CheckConstraint("(verdict = 'OPEN') = (judged_at IS NULL)", name="judged_unless_open"),
    Index(
        "uq_truth_samples_one_open_per_product",
        "seller_id",
        "item_no",
        unique=True,
        postgresql_where=text("verdict = 'OPEN'"),
    ),
    Index(None, "judged_at"),
)

alerts = Table(
    "alerts",
    metadata,
    Column("alert_id", Uuid, primary_key=True, server_default=func.gen_random_uuid()),
    # At most one alert is open per subject.
    Column("subject", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("title", Text, nullable=False),
    Column("detail", Text, nullable=False),
    timestamp("opened_at"),
    timestamp("last_seen_at"),
    timestamp("ended_at", nullable=True),
    # When it is due to be sent next; and which addresses got it, by their hash, and when (`hash@time`).
    timestamp("notice_at", nullable=True),
    Column("reached", ARRAY(Text), nullable=False, server_default=text("'{}'")),
    Column("notices", Integer, nullable=False, server_default="0"),
    Column("last_error", Text),
    Column("lease_owner", Text),
    Column("lease_no", Integer, nullable=False, server_default="0"),
    timestamp("lease_expires_at", nullable=True),
    CheckConstraint("btrim(subject) <> ''", name="subject_not_blank"),
    CheckConstraint("(lease_owner IS NULL) = (lease_expires_at IS NULL)", name="lease_with_end"),
    Index("uq_alerts_one_open_per_subject", "subject", unique=True, postgresql_where=text("ended_at IS NULL")),
    Index("ix_alerts_due", "notice_at", postgresql_where=text("notice_at IS NOT NULL")),
    Index(None, "subject", "last_seen_at"),
    Index(None, "opened_at"),
)
