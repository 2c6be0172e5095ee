"""Rules of admission control, which replica evaluates them, and their log; runs that are held."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Boolean, Column, text
from sqlalchemy.dialects.postgresql import JSONB

revision = "0005"
down_revision = "0004"
additive = True

_SCHEMA = "portolan_catalogue"
_STATEMENTS = """
CREATE TABLE portolan_catalogue.admission_rules (
    "only" INTEGER PRIMARY KEY,
    version BIGINT NOT NULL,
    text TEXT NOT NULL,
    author JSONB,
    at TIMESTAMPTZ NOT NULL DEFAULT now()
);
CREATE TABLE portolan_catalogue.admission_evaluator (
    "only" INTEGER PRIMARY KEY,
    replica TEXT NOT NULL,
    leased_until TIMESTAMPTZ NOT NULL
);
CREATE TABLE portolan_catalogue.admission_log (
    id BIGSERIAL PRIMARY KEY,
    at TIMESTAMPTZ NOT NULL DEFAULT now(),
    replica TEXT NOT NULL,
    entry JSONB NOT NULL
)
"""
_TABLES = ("admission_rules", "admission_evaluator", "admission_log")


def upgrade() -> None:
    for statement in _STATEMENTS.split(";"):  # the driver takes one at a time
        op.execute(statement)
    held = Column("held", Boolean, nullable=False, server_default=text("false"))
    op.add_column("runs", held, schema=_SCHEMA)
    op.add_column("workers", Column("load", JSONB), schema=_SCHEMA)


def downgrade() -> None:
    op.drop_column("workers", "load", schema=_SCHEMA)
    op.drop_column("runs", "held", schema=_SCHEMA)
    for table in _TABLES:
        op.drop_table(table, schema=_SCHEMA)
