"""Alembic runs inside the transaction that the caller opened; a test compares the result with the rooms' tables."""

from alembic import context

from mustit_pipeline.foundation.tables import metadata

# Of the metadata the migrations need only how constraints are named.
context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
