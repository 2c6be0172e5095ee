"""Databases know until when the objects of classes had owners that have none any more."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, text
from sqlalchemy.dialects.postgresql import JSONB

revision = "0007"
down_revision = "0006"
additive = True

SCHEMA = "portolan_catalogue"


def upgrade() -> None:
    """Add the times; which owner fields were taken away before is not known."""
    times = Column("owned_until", JSONB, nullable=False, server_default=text("'{}'"))
    op.add_column("databases", times, schema=SCHEMA)


def downgrade() -> None:
    """Remove them: what was of these classes is open to all readers from then on."""
    op.drop_column("databases", "owned_until", schema=SCHEMA)
