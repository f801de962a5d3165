"""PostgreSQL and Redis from wheels under MUSTIT_HOME: started by the first user, stopped after the last."""

from mustit_pipeline.embedded.errors import EmbeddedError
from mustit_pipeline.embedded.sharing import Servers, ServersStatus, attach, release, status, stop

__all__ = ["EmbeddedError", "Servers", "ServersStatus", "attach", "release", "status", "stop"]
