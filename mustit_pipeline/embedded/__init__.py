"""PostgreSQL and Redis from wheels under MUSTIT_HOME: started by the first user, stopped after the last."""

from mustit_pipeline.embedded.binaries import redis_programs
from mustit_pipeline.embedded.errors import EmbeddedError
from mustit_pipeline.embedded.sharing import Servers, ServersStatus, attach, release, status, stop

__all__ = ["EmbeddedError", "Servers", "ServersStatus", "attach", "has_redis", "release", "status", "stop"]


def has_redis() -> bool:
    """Whether a Redis can be started here; otherwise PostgreSQL alone counts requests."""
    return redis_programs() is not None
