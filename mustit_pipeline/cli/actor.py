"""Who works at the command line, for the audit log."""

import getpass
import os

from mustit_pipeline.access.sql.audit_log import Actor
from mustit_pipeline.domain.access import ActorKind


def operator() -> str:
    """The account of this process; a container may have one without a name."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return f"uid {os.getuid()}"


def cli_actor() -> Actor:
    """The operator as the audit log names them."""
    return Actor(ActorKind.CLI, operator())
