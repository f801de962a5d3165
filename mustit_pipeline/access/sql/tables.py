"""Users, their tokens and logins, API keys, and the audit log."""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    Uuid,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from mustit_pipeline.domain.access import ActorKind, Role
from mustit_pipeline.foundation.tables import metadata, one_of, timestamp

users = Table(
    "users",
    metadata,
    Column("user_name", Text, primary_key=True),
    Column("role", Text, nullable=False),
    # argon2id; a user without one logs in by a link.
    Column("password_hash", Text),
    # Access tokens of an older generation are refused.
    Column("token_generation", Integer, nullable=False, server_default="0"),
    timestamp("disabled_at", nullable=True),
    timestamp("created_at", default=True),
    timestamp("updated_at", default=True),
    timestamp("last_login_at", nullable=True),
    one_of("role", Role),
    CheckConstraint("btrim(user_name) <> ''", name="user_name_not_blank"),
)

# Logged out, and not expired yet.
revoked_tokens = Table(
    "revoked_tokens",
    metadata,
    Column("jti", Uuid, primary_key=True),
    timestamp("expires_at"),
    Index(None, "expires_at"),
)

login_links = Table(
    "login_links",
    metadata,
    Column("link_id", Text, primary_key=True),
    Column("secret_hash", LargeBinary, nullable=False),
    Column("user_name", Text, ForeignKey("users.user_name"), nullable=False),
    timestamp("expires_at"),
    Index(None, "expires_at"),
)

# Counted before the password is looked at, and set back by a good one.
login_failures = Table(
    "login_failures",
    metadata,
    # A hash of the name that was typed, which may be a password in the wrong field.
    Column("account", Text, primary_key=True),
    Column("address", Text, primary_key=True),
    Column("failures", Integer, nullable=False),
    timestamp("failed_at", nullable=True),
    timestamp("succeeded_at", nullable=True),
    timestamp("seen_at"),
    CheckConstraint("(failures = 0) = (failed_at IS NULL)", name="failed_with_time"),
    Index(None, "account", "failed_at"),
    Index(None, "address", "failed_at"),
    Index(None, "seen_at"),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("key_id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("scopes", ARRAY(Text), nullable=False),
    Column("secret_hash", LargeBinary, nullable=False),
    timestamp("created_at", default=True),
    timestamp("expires_at"),
    timestamp("last_used_at", nullable=True),
    timestamp("revoked_at", nullable=True),
    CheckConstraint("btrim(name) <> ''", name="name_not_blank"),
    CheckConstraint("scopes <@ ARRAY['metrics', 'trigger'] AND cardinality(scopes) > 0", name="scopes_known"),
)

# A trigger refuses updates; rows go by their age alone.
audit_log = Table(
    "audit_log",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("at", DateTime(timezone=True), nullable=False, server_default=func.clock_timestamp()),
    Column("actor_kind", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("before", JSONB(none_as_null=True)),
    Column("after", JSONB(none_as_null=True)),
    Column("request_id", Text),
    Column("address", Text),
    one_of("actor_kind", ActorKind),
    # True of every row, and stated by statements that go by time alone: one that asks for an actor's entries, say,
    # cannot be led to walk all of them, whatever the planner believes of actors.
    Index("ix_audit_log_by_time", "at", "id", postgresql_where=text("id > 0")),
    Index(None, "actor", "at", "id"),
    Index(None, "action", "at", "id"),
    Index(None, "target", "at", "id"),
)
