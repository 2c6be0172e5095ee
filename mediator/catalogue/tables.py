"""The tables of the catalogue."""

from __future__ import annotations

from typing import Final

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
from sqlalchemy.schema import SchemaItem

__all__ = [
    "SCHEMA",
    "access",
    "admission_evaluator",
    "admission_log",
    "admission_rules",
    "api_keys",
    "databases",
    "dropped_databases",
    "epoch",
    "installation",
    "metadata",
    "proposals",
    "replicas",
    "revisions",
    "runs",
    "schema_changes",
    "schema_revisions",
    "secrets",
    "systems",
    "tenant_databases",
    "tenants",
    "transactions",
    "violations",
    "workers",
]

SCHEMA: Final = "portolan_catalogue"
"""Their PostgreSQL schema."""

metadata = MetaData(schema=SCHEMA)


def _table(name: str, *columns: SchemaItem) -> Table:
    return Table(name, metadata, *columns)


epoch = _table(
    "epoch",
    Column("only", Integer, primary_key=True, default=1),
    Column("epoch", BigInteger, nullable=False),
)
"""One row: the epoch of the newest routing model. Its row lock serialises schema changes."""

installation = _table(
    "installation",
    Column("only", Integer, primary_key=True, default=1),
    Column("id", Text, nullable=False),
)
"""One row: the id of the installation. Backups omit it: a restored installation keeps its own."""

databases = _table(
    "databases",
    Column("name", Text, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("version", BigInteger, nullable=False),
    Column("document", JSONB, nullable=False),
    Column("layout", JSONB, nullable=False),
    Column("hold", Text),
    Column("held", JSONB(none_as_null=True)),
    Column("held_until", DateTime(timezone=True)),
    Column("owned_until", JSONB, nullable=False, server_default=text("'{}'")),
    Column("overrides", JSONB, nullable=False, server_default=text("'{}'")),
    Column("retired_before", BigInteger, nullable=False, server_default=text("0")),
)
"""One row per database: its id, which is never reused, its schema as JSON, the system of each
cache group of each class, the classes whose writes are held while they are placed elsewhere,
when the objects of classes without owners last had owners, overrides of its placement, and the
lowest version that clients can pin."""

dropped_databases = _table(
    "dropped_databases",
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("document", JSONB, nullable=False),
    Column("layout", JSONB, nullable=False),
    Column("at", DateTime(timezone=True), nullable=False, server_default=func.now()),
)
"""Recently dropped databases, which may have data left elsewhere."""

replicas = _table(
    "replicas",
    Column("name", Text, primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("seen", DateTime(timezone=True), nullable=False, server_default=func.now()),
)
"""Replicas that may write: the epoch each has in force, and when it last confirmed that."""

schema_changes = _table(
    "schema_changes",
    Column("epoch", BigInteger, primary_key=True, autoincrement=False),
    Column("change", Text, nullable=False),
    Column("database", Text, nullable=False),
)
"""The database that each of the last epochs has changed; change ids are never reused."""

schema_revisions = _table(
    "schema_revisions",
    Column(
        "database_id",
        Text,
        ForeignKey(databases.c.id, ondelete="CASCADE", deferrable=True, initially="DEFERRED"),
        primary_key=True,
    ),
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("document", JSONB, nullable=False),
    Column("at", DateTime(timezone=True)),
    Column("author", JSONB(none_as_null=True)),
    Column("changes", JSONB(none_as_null=True)),
    Column("names", JSONB(none_as_null=True)),
)
"""The last schemas of each database, including the present one, and the effect of each change on
names; without time, author and changes, if it was set before revisions were stored, and without
names, if code that stores none set it. The foreign key is checked at the commit: revisions of a
backup are added before their database."""

systems = _table(
    "systems",
    Column("name", Text, primary_key=True),
    Column("position", BigInteger, nullable=False),
    Column("registration", JSONB, nullable=False),
    Column("findings", JSONB, nullable=False),
)
"""One row per system: the statements of its operator, and the findings about it."""

transactions = _table(
    "transactions",
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
"""Writes over several systems that are under way, and stored answers until their lease ends."""

violations = _table(
    "violations",
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
"""Violations of annotations, for operators; the oldest are dropped."""

proposals = _table(
    "proposals",
    Column("database_id", Text, ForeignKey(databases.c.id, ondelete="CASCADE"), primary_key=True),
    Column("node", Text, primary_key=True),
    Column("current", Text, nullable=False),
    Column("proposed", Text, nullable=False),
    Column("margin", Float, nullable=False),
    Column("since", DateTime(timezone=True), nullable=False),
    Column("recorded", Boolean, nullable=False),
    Column("lost_at", DateTime(timezone=True)),
    Column("why", Text, nullable=False),
)
"""Nodes that present scores would place elsewhere."""

secrets = _table(
    "secrets", Column("name", Text, primary_key=True), Column("value", Text, nullable=False)
)
"""Values that all replicas share by name: keys, such as that which authenticates cursors, and
facts that must outlast every other store, such as the longest lifetime of copies in caches."""

access = _table(
    "access",
    Column("only", Integer, primary_key=True, default=1),
    Column("version", BigInteger, nullable=False),
)
"""One row: how often tenants and keys were changed. Its row lock serialises their changes."""

tenants = _table(
    "tenants", Column("name", Text, primary_key=True), Column("limits", JSONB, nullable=False)
)
"""Owners of databases."""

tenant_databases = _table(
    "tenant_databases",
    Column("database", Text, primary_key=True),
    Column("tenant", Text, nullable=False, index=True),
)
"""The owner of each database: a name can be owned before it has a schema."""

api_keys = _table(
    "api_keys",
    Column("id", Text, primary_key=True),
    Column("tenant", Text, nullable=False, index=True),
    Column("subject", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("grants", JSONB, nullable=False),
    Column("label", Text, nullable=False),
    Column("created", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("expires", DateTime(timezone=True)),
)
"""API keys: hashes of their secrets, and their grants. A revoked key is deleted."""

runs = _table(
    "runs",
    Column("id", Text, primary_key=True),
    Column("position", BigInteger, Identity(), nullable=False, unique=True),
    Column("database", Text, nullable=False),
    Column("database_id", Text, nullable=False),
    Column("document", JSONB, nullable=False),
    Column("dry_run", Boolean, nullable=False),
    Column("state", Text, nullable=False, default="queued"),
    Column("version", BigInteger, nullable=False, default=1),
    Column("attempt", Integer, nullable=False, default=0),
    Column("failed_attempts", Integer, nullable=False, default=0),
    Column("cancelling", Boolean, nullable=False, default=False),
    Column("leased_until", DateTime(timezone=True)),
    Column("progress", JSONB, nullable=False, default=dict),
    Column("outcome", JSONB, nullable=False, default=dict),
    Column("created", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("ended", DateTime(timezone=True)),
    Column("key", Text),
    Column("fingerprint", Text),
    Column("held", Boolean, nullable=False, server_default=text("false")),
    UniqueConstraint("database_id", "key", name="runs_key"),
)
"""Runs of analytic jobs, which are also the queue of the workers."""

Index("runs_of_database", runs.c.database_id, runs.c.position)
Index("runs_to_do", runs.c.position, postgresql_where=runs.c.ended.is_(None))

workers = _table(
    "workers",
    Column("name", Text, primary_key=True),
    Column("seen", DateTime(timezone=True), nullable=False),
    Column("failure", Text),
    Column("load", JSONB(none_as_null=True)),
)
"""Workers that were seen, why one of them cannot work, and how loaded their machines are."""

admission_rules = _table(
    "admission_rules",
    Column("only", Integer, primary_key=True, default=1),
    Column("version", BigInteger, nullable=False),
    Column("text", Text, nullable=False),
    Column("author", JSONB(none_as_null=True)),
    Column("at", DateTime(timezone=True), nullable=False, server_default=func.now()),
)
"""One row, once rules were set: the rules of admission control."""

admission_evaluator = _table(
    "admission_evaluator",
    Column("only", Integer, primary_key=True, default=1),
    Column("replica", Text, nullable=False),
    Column("leased_until", DateTime(timezone=True), nullable=False),
)
"""One row: the replica that evaluates the rules about what all replicas share."""

admission_log = _table(
    "admission_log",
    Column("id", BigInteger, primary_key=True, autoincrement=True),
    Column("at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("replica", Text, nullable=False),
    Column("entry", JSONB, nullable=False),
)
"""Rules that have fired; the oldest are dropped."""

revisions = _table(
    "revisions",
    Column("revision", Text, primary_key=True),
    Column("additive", Boolean, nullable=False),
    Column("applied", DateTime(timezone=True), nullable=False, server_default=func.now()),
)
"""Revisions of these tables, and whether code that lacks a revision can run on tables with it."""
