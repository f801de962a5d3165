"""Links that log a user in once."""

from datetime import datetime

from sqlalchemy import Connection, text

from mustit_pipeline.domain.access import UserName
from mustit_pipeline.foundation.aging import Aged

AGED = Aged("login_links", ("expires_at",))

_ADD = text("""
    INSERT INTO login_links (link_id, secret_hash, user_name, expires_at)
    VALUES (:id, :hash, :name, now() + make_interval(secs => :seconds)) RETURNING expires_at
""")
# Of two that use it at once one finds the row.
_TAKE = text("""
    DELETE FROM login_links WHERE link_id = :id AND secret_hash = :hash
    RETURNING user_name, expires_at > now() AS in_time
""")


def add(connection: Connection, link_id: str, secret_hash: bytes, name: UserName, seconds: float) -> datetime:
    """Store a link; says until when it works."""
    values = {"id": link_id, "hash": secret_hash, "name": name.value, "seconds": seconds}
    return connection.execute(_ADD, values).scalar_one()


def take(connection: Connection, link_id: str, secret_hash: bytes) -> UserName | None:
    """Use a link up; says whose it was, unless it was used before or its time is over."""
    row = connection.execute(_TAKE, {"id": link_id, "hash": secret_hash}).one_or_none()
    return UserName(row.user_name) if row is not None and row.in_time else None
