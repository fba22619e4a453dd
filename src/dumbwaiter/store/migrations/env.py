"""Alembic's environment: the connection and the tables are handed over by `schema.upgrade`."""

from __future__ import annotations

from alembic import context

connection = context.config.attributes["connection"]
tables = context.config.attributes["tables"]
context.configure(
    connection=connection,
    target_metadata=tables.metadata,
    version_table=tables.version_table,
    version_table_schema=tables.schema,
    render_as_batch=connection.dialect.name == "sqlite",
)
with context.begin_transaction():
    context.run_migrations()
