"""Alembic runs inside the transaction that the caller opened."""

from alembic import context

from mustit_pipeline.store import agent_tables, catalog_tables, watch_tables

# All tables share one metadata, which is whole once every module of tables has been imported.
[metadata] = {agent_tables.metadata, catalog_tables.metadata, watch_tables.metadata}

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, compare_type=True, compare_server_default=True)
context.run_migrations()
