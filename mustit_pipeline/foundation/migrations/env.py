"""Alembic runs inside the transaction that the caller opened; a test compares the result with the rooms' tables."""

from alembic import context

from mustit_pipeline.foundation.tables import metadata

# The migrations need only the naming convention of the metadata.
context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
