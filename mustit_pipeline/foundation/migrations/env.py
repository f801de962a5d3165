"""Alembic runs inside the transaction that the caller opened; a test compares the result with the rooms' tables."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
