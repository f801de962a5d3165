"""The table of counts and durations."""

from sqlalchemy import BigInteger, CheckConstraint, Column, Double, Integer, PrimaryKeyConstraint, Table, Text
from sqlalchemy.dialects.postgresql import ARRAY

from mustit_pipeline.foundation.tables import metadata, timestamp

tallies = Table(
    "tallies",
    metadata,
    Column("subject", Text, nullable=False),
    # The hour in which it was counted; `infinity` for all hours together, which no retention removes.
    timestamp("hour"),
    Column("labels", ARRAY(Text), nullable=False),
    # A transaction writes into a slot that no other one writes into: none waits for another.
    Column("slot", Integer, nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("seconds", Double, nullable=False),
    Column("buckets", ARRAY(BigInteger), nullable=False),
    PrimaryKeyConstraint("subject", "hour", "labels", "slot"),
    CheckConstraint("subject IN ('CHANGE', 'DELIVERY', 'FETCH', 'SAMPLE')", name="subject_known"),
)
