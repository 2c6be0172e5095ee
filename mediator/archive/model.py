"""What a backup is made of.

A directory holds a file for each class, ``<database>/<class>.ndjson.gz``, one object a line in the
order of ids; ``catalogue.ndjson.gz`` with what else the catalogue keeps; and ``manifest.json``,
which is written last: without one there is no backup, as it was never finished. The manifest names
every file with its length and SHA-256, and carries a digest of itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import orjson

from mediator.base.errors import Conflict
from mediator.schema.ids import NAME

__all__ = [
    "CATALOGUE",
    "MANIFEST",
    "ArchiveInvalid",
    "DatabasePart",
    "FilePart",
    "Manifest",
    "class_file",
]

CATALOGUE: Final = "catalogue.ndjson.gz"
MANIFEST: Final = "manifest.json"
_FORMAT: Final = 1


class ArchiveInvalid(Conflict):
    """A directory is no backup, or its files are not what was written."""


@dataclass(frozen=True, slots=True)
class FilePart:
    """A file as it was written.

    Attributes:
        lines: Objects, or rows, one a line.
        bytes: Its length.
        sha256: Its digest, in hexadecimal digits.
        newest: The highest version of any group in it; 0 if it has none.
    """

    lines: int
    bytes: int
    sha256: str
    newest: int = 0


@dataclass(frozen=True, slots=True)
class DatabasePart:
    """A database.

    Attributes:
        document: Its schema as JSON, complete.
        placed: Its layout: the system of each cache group of each class.
        position: A position of its feed from before the first object was read: who loads the
            objects and follows the feed from there misses nothing. None: there was no feed.
        classes: The files of its classes, by name.
    """

    document: dict[str, Any]
    placed: dict[str, Any]
    position: str | None
    classes: Mapping[str, FilePart]


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a backup holds.

    Attributes:
        created: When it was begun (RFC 3339, UTC).
        catalogue: The file with rows of the catalogue.
        systems: What operators said of each system, without its address.
        databases: The databases, by name.
    """

    created: str
    catalogue: FilePart
    systems: dict[str, Any]
    databases: Mapping[str, DatabasePart]

    def files(self) -> dict[str, FilePart]:
        """Return all files by their paths below the directory."""
        classes = {
            class_file(database, name): file
            for database, part in self.databases.items()
            for name, file in part.classes.items()
        }
        return {CATALOGUE: self.catalogue, **classes}

    def to_json(self) -> bytes:
        """Return the text of the manifest."""
        members = {"format": _FORMAT, **asdict(self)}
        options = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS
        return orjson.dumps({**members, "digest": _digest(members)}, option=options)

    @classmethod
    def from_json(cls, text: bytes) -> Manifest:
        """Read the text of a manifest; `ArchiveInvalid` if it is none, or was changed."""
        try:
            members = orjson.loads(text)
            digest = members.pop("digest")
            if digest != _digest(members):
                raise ArchiveInvalid(f"{MANIFEST} is damaged: its digest is another.")
            if members["format"] != _FORMAT:
                raise ArchiveInvalid(f"The backup is of another format: {members['format']!r}.")
            databases = {name: _database(name, part) for name, part in members["databases"].items()}
            catalogue = FilePart(**members["catalogue"])
            return cls(members["created"], catalogue, members["systems"], databases)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ArchiveInvalid(f"{MANIFEST} is no manifest of a backup.") from error


def class_file(database: str, class_name: str) -> str:
    """Return the path of a class's file below the directory."""
    return f"{database}/{class_name}.ndjson.gz"


def _database(name: str, members: dict[str, Any]) -> DatabasePart:
    classes = {each: FilePart(**file) for each, file in members["classes"].items()}
    # Names become paths.
    if not all(NAME.fullmatch(each) for each in (name, *classes)):
        raise ValueError(name)
    return DatabasePart(members["document"], members["placed"], members["position"], classes)


def _digest(members: dict[str, Any]) -> str:
    return hashlib.sha256(orjson.dumps(members, option=orjson.OPT_SORT_KEYS)).hexdigest()
