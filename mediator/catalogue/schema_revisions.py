"""Revisions of schemas: the last versions of each database's schema, when and by whom each was set.

They belong to the id of a database and are removed with it. Code that keeps none, in a rolling
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
    "REVISIONS_KEPT",
    "Author",
    "ChangeRecord",
    "FormerVersion",
    "SchemaHistory",
    "SchemaRevision",
    "StoredRevision",
    "former",
    "keep",
    "keep_all",
    "newest",
    "read",
    "stored",
]

REVISIONS_KEPT: Final = 100
"""Revisions kept of each database."""

_DESCRIBED: Final = tuple(c for c in schema_revisions.c if c.name not in ("document", "names"))


@dataclass(frozen=True, slots=True)
class Author:
    """Who has set a schema."""

    tenant: str
    subject: str


@dataclass(frozen=True, slots=True)
class SchemaRevision:
    """One version of a schema.

    Attributes:
        at: When it was set; None: before revisions were kept.
        author: None: it is not known, as where requests need no key.
        changes: How many nodes it has added, removed and changed; None: not known.
    """

    version: int
    at: datetime | None
    author: Author | None
    changes: Mapping[str, int] | None


@dataclass(frozen=True, slots=True)
class ChangeRecord:
    """What is kept of a change beside the schema that it led to; None: it is not known.

    Attributes:
        author: Who made it.
        counts: How many nodes it added, removed and changed.
        names: What it did to names.
    """

    author: Author | None = None
    counts: Mapping[str, int] | None = None
    names: NameChanges | None = None


@dataclass(frozen=True, slots=True)
class StoredRevision:
    """One version of a schema with all that is kept of it.

    Attributes:
        at: When it was set; None: before revisions were kept.
        change: What is known of the change that led to it.
    """

    version: int
    document: dict[str, Any]
    at: datetime | None
    change: ChangeRecord


@dataclass(frozen=True, slots=True)
class SchemaHistory:
    """What a database that is created from a backup has had before.

    Attributes:
        version: The version that its schema has at once.
        set_at: When that was set; None: it is not known.
        retired_before: The version before which clients may pin none.
        revisions: The versions that are kept, in their order; they may be iterated repeatedly.
    """

    version: int
    set_at: datetime | None
    retired_before: int
    revisions: Iterable[StoredRevision]


@dataclass(frozen=True, slots=True)
class FormerVersion:
    """A former schema, and what the changes since did to names, in their order.

    Those that a restoration has undone are left out.
    """

    document: dict[str, Any]
    changes: tuple[NameChanges, ...]


async def keep(connection: AsyncConnection, database: StoredDatabase, change: ChangeRecord) -> None:
    """Keep the schema that a database is about to have, and forget the oldest."""
    of = schema_revisions.c
    now = func.clock_timestamp()  # the transaction may have waited for the epoch
    revision = StoredRevision(database.version, database.document, None, change)
    row = {**_row(database.id, revision), "at": now}
    await connection.execute(insert(schema_revisions).values(row))
    past = of.version <= database.version - REVISIONS_KEPT
    await connection.execute(delete(schema_revisions).where(of.database_id == database.id, past))


async def keep_all(connection: AsyncConnection, database_id: str, history: SchemaHistory) -> None:
    """Keep the history of a database that the same transaction is about to create.

    It takes seconds, so nothing should be locked yet that others wait for.
    """
    left = iter(history.revisions)
    # One by one, and read by a thread: they come from a file, and each may be megabytes long.
    while (revision := await asyncio.to_thread(next, left, None)) is not None:
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


async def stored(catalogue: Catalogue, database_id: str) -> AsyncIterator[StoredRevision]:
    """Yield all versions of a schema that are kept, in their order; raises `Unavailable`."""
    of, version = schema_revisions.c, 0
    while True:
        found = select(schema_revisions).where(of.database_id == database_id, of.version > version)
        row = (await catalogue.execute(found.order_by(of.version).limit(1))).first()
        if row is None:
            return
        version = row.version
        change = ChangeRecord(_author(row), row.changes, row.names)
        yield StoredRevision(version, row.document, row.at, change)


async def newest(
    connection: AsyncConnection, database_id: str, before: int | None, limit: int
) -> Sequence[SchemaRevision]:
    """Return up to `limit` revisions, the newest first, of those before a version."""
    of = schema_revisions.c
    found = select(*_DESCRIBED).where(of.database_id == database_id)
    if before is not None:
        found = found.where(of.version < before)
    rows = await connection.execute(found.order_by(of.version.desc()).limit(limit))
    return [_revision(row) for row in rows]


async def read(
    connection: AsyncConnection, database_id: str, version: int
) -> tuple[SchemaRevision, dict[str, Any]] | None:
    """Return one revision and its schema; None: it is not kept."""
    of = schema_revisions.c
    found = select(schema_revisions).where(of.database_id == database_id, of.version == version)
    row = (await connection.execute(found)).first()
    return None if row is None else (_revision(row), row.document)


async def former(
    connection: AsyncConnection, database_id: str, version: int, present: int
) -> FormerVersion | None:
    """Return a version and what led from it to the `present` one; None: not all of that is kept."""
    of = schema_revisions.c
    here = of.database_id == database_id
    found = select(of.document).where(here, of.version == version)
    document = (await connection.execute(found)).scalar()
    since = select(of.names).where(here, of.version > version, of.version <= present)
    changes = (await connection.execute(since.order_by(of.version))).scalars().all()
    if document is None or len(changes) != present - version:
        return None
    led = effective_changes(version, changes)
    known = tuple(change for change in led if change is not None)
    return FormerVersion(document, known) if len(known) == len(led) else None


def _revision(row: Row[Any]) -> SchemaRevision:
    return SchemaRevision(row.version, row.at, _author(row), row.changes)


def _author(row: Row[Any]) -> Author | None:
    return None if row.author is None else Author(**row.author)
