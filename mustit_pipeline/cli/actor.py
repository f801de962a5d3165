"""Who works at the command line, for the audit log."""

import getpass
import os

from mustit_pipeline.access.audit import AuditedDatabase, Look
from mustit_pipeline.access.sql.audit_log import Actor
from mustit_pipeline.domain.access import ActorKind
from mustit_pipeline.foundation.database import Database


def operator() -> str:
    """The account of this process; a container may have one without a name."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return f"uid {os.getuid()}"


def cli_actor() -> Actor:
    """The operator as the audit log names them."""
    return Actor(ActorKind.CLI, operator())


def audited(database: Database, action: str, target: str, look: Look | None = None) -> AuditedDatabase:
    """The database for one change by the operator, which is written down in the audit log."""
    return AuditedDatabase(database, cli_actor(), action, target, look)
