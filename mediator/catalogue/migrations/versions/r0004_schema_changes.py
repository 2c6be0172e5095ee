"""The catalogue tells which database each epoch has changed."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, Text

revision = "0004"
down_revision = "0003"
additive = True

SCHEMA = "portolan_catalogue"


def upgrade() -> None:
    """Make the table, empty: who misses an epoch in it reads all databases, as code before did.

    So it does no harm that code which does not know the table leaves its changes out.
    """
    op.create_table(
        "schema_changes",
        Column("epoch", BigInteger, primary_key=True, autoincrement=False),
        Column("change", Text, nullable=False),
        Column("database", Text, nullable=False),
        schema=SCHEMA,
    )


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("schema_changes", schema=SCHEMA)
