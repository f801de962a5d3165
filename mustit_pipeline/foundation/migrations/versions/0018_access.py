"""Users, access tokens that were ended, login links, failed logins, API keys, and the audit log."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def _timestamp(name: str, *, nullable: bool = False, default: bool = False) -> sa.Column[object]:
    made = sa.func.now() if default else None
    return sa.Column(name, sa.DateTime(timezone=True), nullable=nullable, server_default=made)


def upgrade() -> None:
    op.create_table(
        "users",
        sa.Column("user_name", sa.Text(), primary_key=True),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("password_hash", sa.Text()),
        sa.Column("token_generation", sa.Integer(), nullable=False, server_default="0"),
        _timestamp("disabled_at", nullable=True),
        _timestamp("created_at", default=True),
        _timestamp("updated_at", default=True),
        _timestamp("last_login_at", nullable=True),
        sa.CheckConstraint("role IN ('admin', 'viewer')", name="role_known"),
        sa.CheckConstraint("btrim(user_name) <> ''", name="user_name_not_blank"),
    )
    op.create_table("revoked_tokens", sa.Column("jti", sa.Uuid(), primary_key=True), _timestamp("expires_at"))
    op.create_index("ix_revoked_tokens_expires_at", "revoked_tokens", ["expires_at"])
    op.create_table(
        "login_links",
        sa.Column("link_id", sa.Text(), primary_key=True),
        sa.Column("secret_hash", sa.LargeBinary(), nullable=False),
        sa.Column("user_name", sa.Text(), sa.ForeignKey("users.user_name"), nullable=False),
        _timestamp("expires_at"),
    )
    op.create_index("ix_login_links_expires_at", "login_links", ["expires_at"])
    op.create_table(
        "login_failures",
        sa.Column("account", sa.Text(), primary_key=True),
        sa.Column("address", sa.Text(), primary_key=True),
        sa.Column("failures", sa.Integer(), nullable=False),
        _timestamp("failed_at", nullable=True),
        _timestamp("succeeded_at", nullable=True),
        _timestamp("seen_at"),
        sa.CheckConstraint("(failures = 0) = (failed_at IS NULL)", name="failed_with_time"),
    )
    op.create_index("ix_login_failures_account_failed_at", "login_failures", ["account", "failed_at"])
    op.create_index("ix_login_failures_address_failed_at", "login_failures", ["address", "failed_at"])
    op.create_index("ix_login_failures_seen_at", "login_failures", ["seen_at"])
    op.create_table(
        "api_keys",
        sa.Column("key_id", sa.Text(), primary_key=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("scopes", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("secret_hash", sa.LargeBinary(), nullable=False),
        _timestamp("created_at", default=True),
        _timestamp("expires_at"),
        _timestamp("last_used_at", nullable=True),
        _timestamp("revoked_at", nullable=True),
        sa.CheckConstraint("btrim(name) <> ''", name="name_not_blank"),
        sa.CheckConstraint("scopes <@ ARRAY['metrics', 'trigger'] AND cardinality(scopes) > 0", name="scopes_known"),
    )
    op.create_index("ix_api_keys_name", "api_keys", ["name"])
    op.create_table(
        "audit_log",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), primary_key=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.clock_timestamp()),
        sa.Column("actor_kind", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("before", postgresql.JSONB()),
        sa.Column("after", postgresql.JSONB()),
        sa.Column("request_id", sa.Text()),
        sa.Column("address", sa.Text()),
        sa.CheckConstraint("actor_kind IN ('person', 'key', 'cli', 'system')", name="actor_kind_known"),
    )
    op.create_index("ix_audit_log_by_time", "audit_log", ["at", "id"], postgresql_where=sa.text("id > 0"))
    for column in ("actor", "action", "target"):
        op.create_index(f"ix_audit_log_{column}_at_id", "audit_log", [column, "at", "id"])
    op.execute("""
        CREATE FUNCTION refuse_audit_update() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'rows of audit_log are never changed'; END $$
    """)
    op.execute("""
        CREATE TRIGGER audit_log_append_only BEFORE UPDATE ON audit_log
        FOR EACH STATEMENT EXECUTE FUNCTION refuse_audit_update()
    """)


def downgrade() -> None:
    for table in ("audit_log", "api_keys", "login_failures", "login_links", "revoked_tokens", "users"):
        op.drop_table(table)
    op.execute("DROP FUNCTION refuse_audit_update()")
