"""Tenants own databases and hold keys."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, DateTime, Integer, Text, func
from sqlalchemy.dialects.postgresql import JSONB

revision = "0003"
down_revision = "0002"
additive = True

SCHEMA = "portolan_catalogue"


def upgrade() -> None:
    """Make the tables, empty: who may do what is not asked before somebody says so."""
    op.create_table(
        "access",
        Column("only", Integer, primary_key=True, default=1),
        Column("version", BigInteger, nullable=False),
        schema=SCHEMA,
    )
    op.create_table(
        "tenants",
        Column("name", Text, primary_key=True),
        Column("limits", JSONB, nullable=False),
        schema=SCHEMA,
    )
    op.create_table(
        "tenant_databases",
        Column("database", Text, primary_key=True),
        Column("tenant", Text, nullable=False, index=True),
        schema=SCHEMA,
    )
    op.create_table(
        "api_keys",
        Column("id", Text, primary_key=True),
        Column("tenant", Text, nullable=False, index=True),
        Column("subject", Text, nullable=False),
        Column("digest", Text, nullable=False),
        Column("grants", JSONB, nullable=False),
        Column("label", Text, nullable=False),
        Column("created", DateTime(timezone=True), nullable=False, server_default=func.now()),
        Column("expires", DateTime(timezone=True)),
        schema=SCHEMA,
    )


def downgrade() -> None:
    """Drop the tables."""
    for table in ("api_keys", "tenant_databases", "tenants", "access"):
        op.drop_table(table, schema=SCHEMA)
