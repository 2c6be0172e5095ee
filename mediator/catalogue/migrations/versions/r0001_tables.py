"""All tables of the catalogue."""

from __future__ import annotations

from alembic import op
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Float,
    ForeignKey,
    Identity,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.schema import CreateIndex, CreateTable

revision = "0001"
down_revision = None
additive = False

SCHEMA = "portolan_catalogue"
tables = MetaData(schema=SCHEMA)

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
    Column("id", Text, nullable=False, unique=True),
    Column("version", BigInteger, nullable=False),
    Column("document", JSONB, nullable=False),
    Column("layout", JSONB, nullable=False),
    Column("hold", Text),
    Column("held", JSONB(none_as_null=True)),
    Column("held_until", DateTime(timezone=True)),
    Column("owned_until", JSONB, nullable=False, server_default=text("'{}'")),
)

Table(
    "dropped_databases",
    tables,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("document", JSONB, nullable=False),
    Column("layout", JSONB, nullable=False),
    Column("at", DateTime(timezone=True), nullable=False, server_default=func.now()),
)

Table(
    "replicas",
    tables,
    Column("name", Text, primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("seen", DateTime(timezone=True), nullable=False, server_default=func.now()),
)

Table(
    "schema_changes",
    tables,
    Column("epoch", BigInteger, primary_key=True, autoincrement=False),
    Column("change", Text, nullable=False),
    Column("database", Text, nullable=False),
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
    "transactions",
    tables,
    Column("intent", Text, primary_key=True),
    Column("database", Text, nullable=False),
    Column("records", JSONB, nullable=False),
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
    "proposals",
    tables,
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
)

Table(
    "secrets",
    tables,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

Table(
    "access",
    tables,
    Column("only", Integer, primary_key=True, default=1),
    Column("version", BigInteger, nullable=False),
)

Table(
    "tenants",
    tables,
    Column("name", Text, primary_key=True),
    Column("limits", JSONB, nullable=False),
)

Table(
    "tenant_databases",
    tables,
    Column("database", Text, primary_key=True),
    Column("tenant", Text, nullable=False, index=True),
)

Table(
    "api_keys",
    tables,
    Column("id", Text, primary_key=True),
    Column("tenant", Text, nullable=False, index=True),
    Column("subject", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("grants", JSONB, nullable=False),
    Column("label", Text, nullable=False),
    Column("created", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("expires", DateTime(timezone=True)),
)

runs = Table(
    "runs",
    tables,
    Column("id", Text, primary_key=True),
    Column("position", BigInteger, Identity(), nullable=False, unique=True),
    Column("database", Text, nullable=False),
    Column("database_id", Text, nullable=False),
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
    UniqueConstraint("database_id", "key", name="runs_key"),
)

Index("runs_of_database", runs.c.database_id, runs.c.position)
Index("runs_to_do", runs.c.position, postgresql_where=runs.c.ended.is_(None))

Table(
    "workers",
    tables,
    Column("name", Text, primary_key=True),
    Column("seen", DateTime(timezone=True), nullable=False),
    Column("trouble", Text),
)

Table(
    "revisions",
    tables,
    Column("revision", Text, primary_key=True),
    Column("additive", Boolean, nullable=False),
    Column("applied", DateTime(timezone=True), nullable=False, server_default=func.now()),
)


def upgrade() -> None:
    """Create the tables, and the row that the epoch is counted in."""
    for table in tables.sorted_tables:
        op.execute(CreateTable(table))
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            op.execute(CreateIndex(index))
    op.execute(epoch.insert().values(only=1, epoch=0))
