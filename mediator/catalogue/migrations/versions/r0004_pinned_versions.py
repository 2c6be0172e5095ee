"""What each change of a schema did to names, and the version before which clients may pin none."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, text
from sqlalchemy.dialects.postgresql import JSONB

revision = "0004"
down_revision = "0003"
additive = True

_SCHEMA = "portolan_catalogue"


def upgrade() -> None:
    op.add_column("schema_revisions", Column("names", JSONB), schema=_SCHEMA)
    before = Column("retired_before", BigInteger, nullable=False, server_default=text("0"))
    op.add_column("databases", before, schema=_SCHEMA)


def downgrade() -> None:
    op.drop_column("databases", "retired_before", schema=_SCHEMA)
    op.drop_column("schema_revisions", "names", schema=_SCHEMA)
