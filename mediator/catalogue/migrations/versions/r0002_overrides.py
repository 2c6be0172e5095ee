"""Overrides of placements by operators."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, text
from sqlalchemy.dialects.postgresql import JSONB

revision = "0002"
down_revision = "0001"
additive = True


def upgrade() -> None:
    overrides = Column("overrides", JSONB, nullable=False, server_default=text("'{}'"))
    op.add_column("databases", overrides, schema="portolan_catalogue")


def downgrade() -> None:
    op.drop_column("databases", "overrides", schema="portolan_catalogue")
