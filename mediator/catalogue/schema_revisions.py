"""Revisions of schemas: the last versions of each database's schema, with time and author.

They belong to the id of a database and are removed with it. Code that stores none, in a rolling
upgrade, leaves gaps. Backups hold them, and a database that is created from one has them at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Row, delete, func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mediator.catalogue.connection import Catalogue
from mediator.catalogue.stored_databases import StoredDatabase
from mediator.catalogue.tables import schema_revisions
from mediator.schema.name_changes import NameChanges, effective_changes

__all__ = [
    "MAX_REVISIONS",
    "Author",
    "ChangeRecord",
    "FormerVersion",
    "SchemaHistory",
    "SchemaRevision",
    "StoredRevision",
    "former",
    "newest",
    "read",
    "store",
    "store_history",
    "stored_revisions",
]

MAX_REVISIONS: Final = 100
"""Stored revisions per database."""

_SUMMARY_COLUMNS: Final = tuple(
    c for c in schema_revisions.c if c.name not in ("document", "names")
)


@dataclass(frozen=True, slots=True)
class Author:
    """Who has set a schema."""

    tenant: str
    subject: str


@dataclass(frozen=True, slots=True)
class SchemaRevision:
    """One version of a schema.

    Attributes:
        at: When it was set; None: before revisions were stored.
        author: None: unknown, as where requests need no key.
        changes: Number of nodes that it added, removed and changed; None: unknown.
    """

    version: int
    at: datetime | None
    author: Author | None
    changes: Mapping[str, int] | None


@dataclass(frozen=True, slots=True)
class ChangeRecord:
    """The stored record of a change, besides the resulting schema; None: unknown.

    Attributes:
        author: Who made it.
        counts: Number of nodes that it added, removed and changed.
        names: Its effect on names.
    """

    author: Author | None = None
    counts: Mapping[str, int] | None = None
    names: NameChanges | None = None


@dataclass(frozen=True, slots=True)
class StoredRevision:
    """One version of a schema with its stored record.

    Attributes:
        at: When it was set; None: before revisions were stored.
        change: The record of the change that led to it.
    """

    version: int
    document: dict[str, Any]
    at: datetime | None
    change: ChangeRecord


@dataclass(frozen=True, slots=True)
class SchemaHistory:
    """The former history of a database that is created from a backup.

    Attributes:
        version: The initial version of its schema.
        set_at: When that was set; None: unknown.
        retired_before: The lowest version that clients can pin.
        revisions: The stored versions, in their order; they can be iterated repeatedly.
    """

    version: int
    set_at: datetime | None
    retired_before: int
    revisions: Iterable[StoredRevision]


@dataclass(frozen=True, slots=True)
class FormerVersion:
    """A former schema, and the effects of later changes on names, in their order.

    Changes that a restoration has undone are left out.
    """

    document: dict[str, Any]
    changes: tuple[NameChanges, ...]


async def store(
    connection: AsyncConnection, database: StoredDatabase, change: ChangeRecord
) -> None:
    """Store the schema that a database is about to have, and remove the oldest."""
    columns = schema_revisions.c
    now = func.clock_timestamp()  # the transaction may have waited for the epoch
    revision = StoredRevision(database.version, database.document, None, change)
    row = {**_row(database.id, revision), "at": now}
    await connection.execute(insert(schema_revisions).values(row))
    is_expired = columns.version <= database.version - MAX_REVISIONS
    await connection.execute(
        delete(schema_revisions).where(columns.database_id == database.id, is_expired)
    )


async def store_history(
    connection: AsyncConnection, database_id: str, history: SchemaHistory
) -> None:
    """Store the history of a database that the same transaction is about to create.

    It takes seconds, so the transaction should hold no contended lock yet.
    """
    remaining = iter(history.revisions)
    # One by one, read by a thread: they come from a file, and each can be megabytes long.
    while (revision := await asyncio.to_thread(next, remaining, None)) is not None:
        row = _row(database_id, revision)
        await connection.execute(insert(schema_revisions).values(row))


def _row(database_id: str, revision: StoredRevision) -> dict[str, Any]:
    change = revision.change
    return {
        "database_id": database_id,
        "version": revision.version,
        "document": revision.document,
        "at": revision.at,
        "author": None if change.author is None else asdict(change.author),
        "changes": change.counts,
        "names": change.names,
    }


async def stored_revisions(catalogue: Catalogue, database_id: str) -> AsyncIterator[StoredRevision]:
    """Yield all stored versions of a schema, in their order; raises `Unavailable`."""
    columns, version = schema_revisions.c, 0
    while True:
        query = select(schema_revisions).where(
            columns.database_id == database_id, columns.version > version
        )
        row = (await catalogue.execute(query.order_by(columns.version).limit(1))).first()
        if row is None:
            return
        version = row.version
        change = ChangeRecord(_author(row), row.changes, row.names)
        yield StoredRevision(version, row.document, row.at, change)


async def newest(
    connection: AsyncConnection, database_id: str, before: int | None, limit: int
) -> Sequence[SchemaRevision]:
    """Return up to `limit` revisions before a version, newest first."""
    columns = schema_revisions.c
    query = select(*_SUMMARY_COLUMNS).where(columns.database_id == database_id)
    if before is not None:
        query = query.where(columns.version < before)
    rows = await connection.execute(query.order_by(columns.version.desc()).limit(limit))
    return [_revision(row) for row in rows]


async def read(
    connection: AsyncConnection, database_id: str, version: int
) -> tuple[SchemaRevision, dict[str, Any]] | None:
    """Return one revision and its schema; None: it is not stored."""
    columns = schema_revisions.c
    query = select(schema_revisions).where(
        columns.database_id == database_id, columns.version == version
    )
    row = (await connection.execute(query)).first()
    return None if row is None else (_revision(row), row.document)


async def former(
    connection: AsyncConnection, database_id: str, version: int, present: int
) -> FormerVersion | None:
    """Return a version and the changes up to the `present` one; None: some are not stored."""
    columns = schema_revisions.c
    is_of_database = columns.database_id == database_id
    query = select(columns.document).where(is_of_database, columns.version == version)
    document = (await connection.execute(query)).scalar()
    later = select(columns.names).where(
        is_of_database, columns.version > version, columns.version <= present
    )
    changes = (await connection.execute(later.order_by(columns.version))).scalars().all()
    if document is None or len(changes) != present - version:
        return None
    effective = effective_changes(version, changes)
    known_changes = tuple(change for change in effective if change is not None)
    return FormerVersion(document, known_changes) if len(known_changes) == len(effective) else None


def _revision(row: Row[Any]) -> SchemaRevision:
    return SchemaRevision(row.version, row.at, _author(row), row.changes)


def _author(row: Row[Any]) -> Author | None:
    return None if row.author is None else Author(**row.author)
