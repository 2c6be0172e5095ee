"""Former versions of schemas in a backup: written, and read as untrusted lines.

A database that is created from a backup gets all of them. An existing one keeps its own, since
clients pin them by number; if it has had the saved version, and has changed since, its next version
adopts that one's names (`mediator.schema.name_changes`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AwareDatetime, Field, TypeAdapter

from mediator.archive.files import (
    ArchiveInvalid,
    DatabasePart,
    HistoryPart,
    LinesFile,
    history_file,
    read_lines,
)
from mediator.catalogue.connection import Catalogue
from mediator.catalogue.schema_revisions import (
    MAX_REVISIONS,
    Author,
    ChangeRecord,
    SchemaHistory,
    StoredRevision,
    stored_revisions,
)
from mediator.catalogue.stored_databases import StoredDatabase
from mediator.schema.documents import check_storable
from mediator.schema.errors import InvalidValue
from mediator.schema.ids import FIELD_NAME, NAME
from mediator.schema.limits import CLASSES_PER_DATABASE, DOCUMENT_DEPTH, FIELDS_PER_CLASS
from mediator.schema.validation import FieldName, Name

__all__ = ["SavedRevisions", "read_history", "save_history"]

_DEPTH: Final = DOCUMENT_DEPTH + 5
"""Maximum nesting depth of a schema: the deepest element is the default of a field."""

_Version = Annotated[int, Field(strict=True, ge=1)]
_Count = Annotated[int, Field(strict=True, ge=0)]
_Node = Annotated[str, Field(pattern=rf"^{NAME.pattern}(\.{FIELD_NAME.pattern})?$")]


@dataclass(frozen=True, slots=True)
class _Class:
    fields: Annotated[dict[FieldName, dict[str, Any]], Field(max_length=FIELDS_PER_CLASS)]


@dataclass(frozen=True, slots=True)
class _Document:
    """The checked members of former schemas, which need not be valid by present rules."""

    classes: Annotated[dict[Name, _Class], Field(max_length=CLASSES_PER_DATABASE)]


@dataclass(frozen=True, slots=True)
class _Counts:
    added: _Count
    removed: _Count
    changed: _Count
    renamed: _Count = 0


@dataclass(frozen=True, slots=True)
class _Names:
    renamed: dict[Name, dict[FieldName, FieldName]]
    ended: list[_Node]
    restored: _Version | None = None


@dataclass(frozen=True, slots=True)
class _Line:
    version: _Version
    document: _Document
    at: AwareDatetime | None
    author: Author | None
    changes: _Counts | None
    names: _Names | None


_READER: Final = TypeAdapter(_Line)


async def save_history(catalogue: Catalogue, path: Path, database: StoredDatabase) -> HistoryPart:
    """Write all stored versions of a schema, one a line.

    Raises:
        Unavailable: The catalogue does not answer.
        OSError: The file cannot be written.
    """
    with LinesFile(path) as file:
        async for revision in stored_revisions(catalogue, database.id):
            await asyncio.to_thread(file.write, [_encode(revision)])
        part = await asyncio.to_thread(file.finish)
    return HistoryPart(database.version, database.retired_before, part)


def read_history(directory: Path, database: str, part: DatabasePart) -> SchemaHistory | None:
    """Return the versions of a schema that a backup holds, after validation.

    None: the backup was made by a Portolan that saved none. Raises `ArchiveInvalid`.
    """
    if (history := part.history) is None:
        return None
    path = directory / history_file(database)
    revisions = SavedRevisions(path, history.file.lines, history.version)
    newest = deque(revisions, maxlen=1)
    set_at = next((revision.at for revision in newest if revision.version == history.version), None)
    return SchemaHistory(history.version, set_at, history.retired_before, revisions)


@dataclass(frozen=True, slots=True)
class SavedRevisions:
    """The versions of a schema in a file, which each iteration reads and validates again.

    Only one of them is in memory at a time, as they are megabytes long.
    """

    _path: Path
    _lines: int
    _newest: int

    def __iter__(self) -> Iterator[StoredRevision]:
        """Yield them in their order; raises `ArchiveInvalid`."""
        before = 0
        for raw in read_lines(self._path, self._lines):
            revision = _decode(raw)
            if not before < revision.version <= self._newest:
                raise ArchiveInvalid("The versions of a schema in the backup are out of order.")
            before = revision.version
            if revision.version > self._newest - MAX_REVISIONS:
                yield revision


def _encode(revision: StoredRevision) -> dict[str, Any]:
    change = revision.change
    return {
        "version": revision.version,
        "document": revision.document,
        "at": revision.at,
        "author": change.author,
        "changes": change.counts,
        "names": change.names,
    }


def _decode(raw: Any) -> StoredRevision:
    try:
        line = _READER.validate_python(raw)
        check_storable(raw, _DEPTH + 1)
        at = None if line.at is None else line.at.astimezone(UTC)
    except (ValueError, OverflowError, InvalidValue) as error:
        raise ArchiveInvalid("A line of the backup is not a version of a schema.") from error
    change = ChangeRecord(line.author, raw["changes"], raw["names"])
    return StoredRevision(line.version, raw["document"], at, change)
