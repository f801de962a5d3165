"""What the product server was last like."""

from sqlalchemy import Column, Integer, Table, Text, Uuid
from sqlalchemy.dialects.postgresql import ARRAY

from mustit_pipeline.foundation.tables import metadata, timestamp

circuit_breakers = Table(
    "circuit_breakers",
    metadata,
    Column("name", Text, primary_key=True),
    # Charged to the server, since it last answered a row well; and the rows that failed so since then.
    Column("failures", Integer, nullable=False, server_default="0"),
    Column("failed_rows", ARRAY(Uuid), nullable=False, server_default="{}"),
    timestamp("answered_at", nullable=True),
    timestamp("open_until", nullable=True),
    # A keyed hash of the credential that is refused; null where the server itself is the reason.
    Column("refused_credential", Text),
    timestamp("updated_at", default=True),
)
