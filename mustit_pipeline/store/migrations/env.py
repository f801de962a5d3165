"""Alembic runs inside the transaction that the caller opened."""

from alembic import context

from mustit_pipeline.store.agent_tables import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, compare_type=True, compare_server_default=True)
context.run_migrations()
