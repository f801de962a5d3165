"""Homes whose PostgreSQL has the schema and the built-in agents from the start: copied, not made and migrated again."""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from sqlalchemy import make_url

from mustit_pipeline import embedded
from mustit_pipeline.agents import roster
from mustit_pipeline.embedded import Servers
from mustit_pipeline.embedded.layout import Layout
from mustit_pipeline.foundation import schema
from mustit_pipeline.foundation.database import Database, make_engine


def attach_migrated(home: Path, *, redis: bool = True) -> Servers:
    """The servers of a new home, whose database is migrated."""
    home.mkdir(parents=True, exist_ok=True)
    # Copied by content: the server's account is given the files when it starts.
    shutil.copytree(_prepared(), Layout(home).pgdata)
    Layout(home).pgdata.chmod(0o700)
    return embedded.attach(home, redis=redis)


@cache
def _prepared() -> Path:
    """The data folder of a stopped server, made once per process."""
    home = Path(tempfile.mkdtemp(prefix="mustit-prepared-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    servers = embedded.attach(home, redis=False)
    try:
        database = Database(make_engine(make_url(servers.database_url)))
        with database.transaction() as connection:
            schema.upgrade(connection)
            roster.ensure_builtin(connection)
        database.close()
    finally:
        embedded.stop(home)
    return Layout(home).pgdata
