"""The migrations of the task tables, run by Alembic through `Schema.migrate`."""
