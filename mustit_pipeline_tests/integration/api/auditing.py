"""What the audit log says after a request."""

from typing import Any

from sqlalchemy import text

from mustit_pipeline.foundation.database import Database


def audited(database: Database, action: str) -> list[tuple[str, str, Any, Any]]:
    """The entries whose action begins so: action, target, before and after, oldest first."""
    query = text("SELECT action, target, before, after FROM audit_log WHERE starts_with(action, :action) ORDER BY id")
    with database.reading() as connection:
        return [tuple(row) for row in connection.execute(query, {"action": action})]
