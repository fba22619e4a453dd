"""The first tables."""

from __future__ import annotations

from alembic import context, op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    context.config.attributes["tables"].metadata.create_all(op.get_bind())


def downgrade() -> None:
    context.config.attributes["tables"].metadata.drop_all(op.get_bind())
