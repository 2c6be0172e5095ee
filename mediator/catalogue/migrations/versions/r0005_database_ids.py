"""Databases have ids and holds, classes have generations, replicas say what they have in force."""

from __future__ import annotations

from typing import Any

from alembic import op
from sqlalchemy import BigInteger, Boolean, Column, DateTime, Float, ForeignKey, Text, func, text
from sqlalchemy.dialects.postgresql import JSONB

revision = "0005"
down_revision = "0004"
additive = False

SCHEMA = "portolan_catalogue"

_WITHOUT_GENERATIONS = f"""
UPDATE {SCHEMA}.databases SET layout = (
    SELECT coalesce(jsonb_object_agg(key, value || '{{"generation": ""}}'), '{{}}')
    FROM jsonb_each(layout))
"""  # noqa: S608 - names of ours
"""Classes are stored under their names."""


def upgrade() -> None:
    """Add the ids; what is there already was named by the names, which become its ids."""
    for table, column, name in (("databases", "id", "name"), ("runs", "database_id", "database")):
        op.add_column(table, Column(column, Text), schema=SCHEMA)
        op.execute(text(f'UPDATE {SCHEMA}.{table} SET {column} = "{name}"'))  # noqa: S608 - names of ours
        op.alter_column(table, column, nullable=False, schema=SCHEMA)
    op.execute(text(_WITHOUT_GENERATIONS))
    op.create_unique_constraint("databases_id_key", "databases", ["id"], schema=SCHEMA)
    op.drop_constraint("runs_database_key_key", "runs", schema=SCHEMA)
    op.create_unique_constraint("runs_key", "runs", ["database_id", "key"], schema=SCHEMA)
    op.drop_index("runs_of_database", "runs", schema=SCHEMA)
    op.create_index("runs_of_database", "runs", ["database_id", "position"], schema=SCHEMA)
    op.create_table(
        "dropped_databases",
        Column("id", Text, primary_key=True),
        Column("name", Text, nullable=False),
        Column("document", JSONB, nullable=False),
        Column("layout", JSONB, nullable=False),
        Column("at", DateTime(timezone=True), nullable=False, server_default=func.now()),
        schema=SCHEMA,
    )
    op.create_table(
        "replicas",
        Column("name", Text, primary_key=True),
        Column("epoch", BigInteger, nullable=False),
        Column("seen", DateTime(timezone=True), nullable=False, server_default=func.now()),
        schema=SCHEMA,
    )
    op.create_table(
        "proposals",
        Column(
            "database_id",
            Text,
            ForeignKey(f"{SCHEMA}.databases.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        Column("node", Text, primary_key=True),
        Column("current", Text, nullable=False),
        Column("proposed", Text, nullable=False),
        Column("margin", Float, nullable=False),
        Column("since", DateTime(timezone=True), nullable=False),
        Column("recorded", Boolean, nullable=False),
        Column("lost_at", DateTime(timezone=True)),
        Column("why", Text, nullable=False),
        schema=SCHEMA,
    )
    for hold in _holds():
        op.add_column("databases", hold, schema=SCHEMA)


def _holds() -> list[Column[Any]]:
    return [
        Column("hold", Text),
        Column("held", JSONB),
        Column("held_until", DateTime(timezone=True)),
    ]


def downgrade() -> None:
    """Remove the ids: databases that were made with one lose their way to what they hold."""
    for hold in _holds():
        op.drop_column("databases", hold.name, schema=SCHEMA)
    for table in ("proposals", "replicas", "dropped_databases"):
        op.drop_table(table, schema=SCHEMA)
    op.drop_index("runs_of_database", "runs", schema=SCHEMA)
    op.drop_constraint("runs_key", "runs", schema=SCHEMA)
    for table, column in (("databases", "id"), ("runs", "database_id")):
        op.drop_column(table, column, schema=SCHEMA)
    op.create_unique_constraint("runs_database_key_key", "runs", ["database", "key"], schema=SCHEMA)
    op.create_index("runs_of_database", "runs", ["database", "position"], schema=SCHEMA)
