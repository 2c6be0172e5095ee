"""Revisions say of themselves whether code that does not know them can do without."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Boolean, Column, DateTime, Text, func

revision = "0002"
down_revision = "0001"
additive = True

SCHEMA = "portolan_catalogue"


def upgrade() -> None:
    """Make the table; what is run after this revision is noted there, itself included."""
    op.create_table(
        "revisions",
        Column("revision", Text, primary_key=True),
        Column("additive", Boolean, nullable=False),
        Column("applied", DateTime(timezone=True), nullable=False, server_default=func.now()),
        schema=SCHEMA,
    )


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("revisions", schema=SCHEMA)
