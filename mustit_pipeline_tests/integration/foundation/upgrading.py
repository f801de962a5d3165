"""Moves of a database's schema: to any revision, or, run as a module, to the newest in a process of its own."""

import sys

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, make_url

from mustit_pipeline.foundation import schema
from mustit_pipeline.foundation.database import make_engine


def migrate(connection: Connection, revision: str, *, down: bool = False) -> None:
    """Bring the schema to a revision of its history."""
    config = Config()
    config.set_main_option("script_location", "mustit_pipeline:foundation/migrations")
    config.attributes["connection"] = connection
    (command.downgrade if down else command.upgrade)(config, revision)


if __name__ == "__main__":
    engine = make_engine(make_url(sys.argv[1]))
    with engine.begin() as connection:
        print(schema.upgrade(connection).current)
    engine.dispose()
