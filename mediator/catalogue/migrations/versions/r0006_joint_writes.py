"""Writes over several systems are carried out by the transactions' log alone."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, DateTime, Text, UniqueConstraint
from sqlalchemy.dialects.postgresql import JSONB

revision = "0006"
down_revision = "0005"
additive = False

SCHEMA = "portolan_catalogue"


_CHECK = f"""
DO $$ BEGIN
    IF EXISTS (SELECT FROM {SCHEMA}.redo_records) THEN
        RAISE EXCEPTION 'writes over several systems are not finished: start the version before '
            'once more, and wait until {SCHEMA}.redo_records is empty';
    END IF;
END $$
"""


def upgrade() -> None:
    """Drop the redo records; code before would leave records there that nobody looks at any more.

    Not while there are any: only code before can finish what they tell of.
    """
    op.execute(_CHECK)
    op.drop_table("redo_records", schema=SCHEMA)


def downgrade() -> None:
    """Make the table, empty."""
    op.create_table(
        "redo_records",
        Column("operation", Text, primary_key=True),
        Column("database", Text, nullable=False),
        Column("class_name", Text, nullable=False),
        Column("object", Text, nullable=False),
        Column("steps", JSONB, nullable=False),
        Column("creation_version", BigInteger),
        Column("leased_until", DateTime(timezone=True), nullable=False, index=True),
        UniqueConstraint("database", "class_name", "object"),
        schema=SCHEMA,
    )
