"""The tables of the catalogue before it had revisions."""

from __future__ import annotations

from alembic import op
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Float,
    Identity,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    func,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.schema import CreateIndex, CreateTable

revision = "0001"
down_revision = None
additive = False

SCHEMA = "portolan_catalogue"
tables = MetaData(schema=SCHEMA)
"""What a catalogue that was made without revisions is compared with."""

epoch = Table(
    "epoch",
    tables,
    Column("only", Integer, primary_key=True, default=1),
    Column("epoch", BigInteger, nullable=False),
)

Table(
    "databases",
    tables,
    Column("name", Text, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("document", JSONB, nullable=False),
    Column("layout", JSONB, nullable=False),
)

Table(
    "systems",
    tables,
    Column("name", Text, primary_key=True),
    Column("position", BigInteger, nullable=False),
    Column("registration", JSONB, nullable=False),
    Column("findings", JSONB, nullable=False),
)

Table(
    "redo_records",
    tables,
    Column("operation", Text, primary_key=True),
    Column("database", Text, nullable=False),
    Column("class_name", Text, nullable=False),
    Column("object", Text, nullable=False),
    Column("steps", JSONB, nullable=False),
    Column("creation_version", BigInteger),
    Column("leased_until", DateTime(timezone=True), nullable=False, index=True),
    UniqueConstraint("database", "class_name", "object"),
)

Table(
    "transactions",
    tables,
    Column("intent", Text, primary_key=True),
    Column("database", Text, nullable=False),
    Column("places", JSONB, nullable=False),
    Column("operation", Text, unique=True),
    Column("fingerprint", Text),
    Column("state", Text, nullable=False),
    Column("redo", JSONB(none_as_null=True)),
    Column("answer", JSONB(none_as_null=True)),
    Column("leased_until", DateTime(timezone=True), nullable=False, index=True),
)

Table(
    "violations",
    tables,
    Column("id", BigInteger, primary_key=True, autoincrement=True),
    Column("at", DateTime(timezone=True), nullable=False, server_default=func.now(), index=True),
    Column("phase", Text, nullable=False),
    Column("database", Text, nullable=False, index=True),
    Column("node", Text, nullable=False),
    Column("metric", Text, nullable=False),
    Column("system", Text, nullable=False),
    Column("measured", Float, nullable=False),
    Column("score", Float, nullable=False),
    Column("below", Float, nullable=False),
    Column("duration_s", Float, nullable=False),
)

Table(
    "secrets",
    tables,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

runs = Table(
    "runs",
    tables,
    Column("id", Text, primary_key=True),
    Column("position", BigInteger, Identity(), nullable=False, unique=True),
    Column("database", Text, nullable=False),
    Column("document", JSONB, nullable=False),
    Column("dry_run", Boolean, nullable=False),
    Column("state", Text, nullable=False),
    Column("version", BigInteger, nullable=False, default=1),
    Column("attempt", Integer, nullable=False, default=0),
    Column("deaths", Integer, nullable=False, default=0),
    Column("cancelling", Boolean, nullable=False, default=False),
    Column("leased_until", DateTime(timezone=True)),
    Column("progress", JSONB, nullable=False),
    Column("ending", JSONB, nullable=False),
    Column("created", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("ended", DateTime(timezone=True)),
    Column("key", Text),
    Column("fingerprint", Text),
    UniqueConstraint("database", "key"),
)

Index("runs_of_database", runs.c.database, runs.c.position)
Index("runs_to_do", runs.c.position, postgresql_where=runs.c.ended.is_(None))

Table(
    "workers",
    tables,
    Column("name", Text, primary_key=True),
    Column("seen", DateTime(timezone=True), nullable=False),
    Column("trouble", Text),
)


def upgrade() -> None:
    """Make the tables, and the row that the epoch is counted in."""
    for table in tables.sorted_tables:
        op.execute(CreateTable(table))
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            op.execute(CreateIndex(index))
    op.execute(epoch.insert().values(only=1, epoch=0))
