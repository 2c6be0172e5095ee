"""The files of a backup: lines of JSON, compressed, on disk before they are named.

A directory holds a file for each class, ``<database>/<class>.ndjson.gz``, one object a line in the
order of ids; ``<database>/schema-history.ndjson.gz``, whose name no class can have, one version of
the schema a line; ``catalogue.ndjson.gz`` with the other rows of the catalogue; and
``manifest.json``, which is written last: without it the backup is unfinished and invalid. The
manifest lists every file with its length and SHA-256, and contains its own digest.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Annotated, Any, Final, Self, cast

import orjson
from pydantic import Field, TypeAdapter

from mediator.base.errors import Conflict
from mediator.schema.ids import NAME
from mediator.schema.overrides import Override

__all__ = [
    "CATALOGUE",
    "MANIFEST",
    "ArchiveInvalid",
    "DatabasePart",
    "FilePart",
    "HistoryPart",
    "LineTooLong",
    "LinesFile",
    "Manifest",
    "class_file",
    "create_directory",
    "history_file",
    "read_lines",
    "read_manifest",
    "verify",
    "write_manifest",
]

CATALOGUE: Final = "catalogue.ndjson.gz"
MANIFEST: Final = "manifest.json"
_FORMAT: Final = 1

MAX_LINE_BYTES: Final = 64 * 2**20
MAX_MANIFEST_BYTES: Final = 256 * 2**20
_LEVEL: Final = 3
"""Half the time of the default, for files that are a tenth longer."""


class ArchiveInvalid(Conflict):
    """A directory is not a backup, or its files have changed."""


class LineTooLong(Conflict):
    """A line exceeds the limit for reading; `index` is its index in its `write` call."""

    def __init__(self, file: Path, index: int) -> None:
        super().__init__(f"A line of {file.name} would have more than {MAX_LINE_BYTES:,} bytes.")
        self.index = index


@dataclass(frozen=True, slots=True)
class FilePart:
    """A file as it was written; `newest` is the highest version of any group in it, or 0."""

    lines: int
    bytes: int
    sha256: str
    newest: int = 0


@dataclass(frozen=True, slots=True)
class HistoryPart:
    """The versions of a schema: the saved one, the lowest that clients can pin, and the file."""

    version: Annotated[int, Field(ge=1, lt=2**53)]
    retired_before: Annotated[int, Field(ge=0)]
    file: FilePart


@dataclass(frozen=True, slots=True)
class DatabasePart:
    """A database: its schema, its layout, the files of its classes, and its overrides by node.

    `position` is of its feed, from before the first object was read; None: there was no feed.
    """

    document: dict[str, Any]
    placed: dict[str, Any]
    position: str | None
    classes: Mapping[str, FilePart]
    overrides: Mapping[str, Override] = field(default_factory=dict)  # older backups have none
    history: HistoryPart | None = None  # likewise


@dataclass(frozen=True, slots=True)
class Manifest:
    """The contents of a backup, with its start in RFC 3339.

    `systems` are the statements of operators about each system, without its address.
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
        histories = {
            history_file(database): part.history.file
            for database, part in self.databases.items()
            if part.history is not None
        }
        return {CATALOGUE: self.catalogue, **histories, **classes}

    def to_json(self) -> bytes:
        members = {"format": _FORMAT, **asdict(self)}
        options = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS
        return orjson.dumps({**members, "digest": _digest(members)}, option=options)

    @classmethod
    def from_json(cls, text: bytes) -> Manifest:
        """Parse a manifest; `ArchiveInvalid` if the text is not one, or was changed."""
        try:
            members = orjson.loads(text)
            digest = members.pop("digest")
            if digest != _digest(members):
                raise ArchiveInvalid(f"{MANIFEST} is damaged: its digest does not match.")
            if (format_ := members.pop("format")) != _FORMAT:
                raise ArchiveInvalid(f"The backup is of another format: {format_!r}.")
            manifest = _READER.validate_python(members)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ArchiveInvalid(f"{MANIFEST} is not the manifest of a backup.") from error
        databases = manifest.databases.items()
        names = [file_name for name, part in databases for file_name in (name, *part.classes)]
        histories = [part.history for _, part in databases if part.history is not None]
        # Names become paths.
        if not all(map(NAME.fullmatch, names)) or any(
            history.retired_before > history.version for history in histories
        ):
            raise ArchiveInvalid(f"{MANIFEST} is not the manifest of a backup.")
        return manifest


_READER: Final = TypeAdapter(Manifest)


def class_file(database: str, class_name: str) -> str:
    return f"{database}/{class_name}.ndjson.gz"


def history_file(database: str) -> str:
    return f"{database}/schema-history.ndjson.gz"


def _digest(members: dict[str, Any]) -> str:
    return hashlib.sha256(orjson.dumps(members, option=orjson.OPT_SORT_KEYS)).hexdigest()


def create_directory(directory: Path) -> None:
    """Create a directory, closed to other users, as it will hold secrets.

    Raises:
        ArchiveInvalid: It exists and is not empty.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise ArchiveInvalid(f"{directory} is not empty: a backup needs its own directory.")


class LinesFile:
    def __init__(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        self._path = path
        self._raw = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
        # Neither name nor time in the header: equal contents give equal files.
        self._compressed = gzip.GzipFile("", "wb", _LEVEL, self._raw, mtime=0)
        self._lines = self._newest = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._compressed.close()
        self._raw.close()

    def write(self, lines: Sequence[Any], newest: int = 0) -> None:
        """Add lines, each a JSON value; `newest` is the highest version in them.

        Raises:
            LineTooLong: A restoration would refuse a line; the file is useless.
        """
        for index, line in enumerate(lines):
            text = orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)
            if len(text) > MAX_LINE_BYTES:
                raise LineTooLong(self._path, index)
            self._compressed.write(text)
        self._lines += len(lines)
        self._newest = max(self._newest, newest)

    def finish(self) -> FilePart:
        """Synchronise the file to disk, and return its entry of the manifest."""
        self._compressed.close()
        self._raw.flush()
        os.fsync(self._raw.fileno())
        self._raw.close()
        length, digest = _length_and_digest(self._path)
        return FilePart(self._lines, length, digest, self._newest)


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Turn the directory into a backup: only the manifest, written last, does."""
    temporary = directory / f".{MANIFEST}"
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(manifest.to_json())
        file.flush()
        os.fsync(file.fileno())
    # The names of the files are on disk before the manifest that refers to them.
    for parent in {directory / Path(name).parent for name in manifest.files()}:
        _sync(parent)
    temporary.rename(directory / MANIFEST)
    _sync(directory)


def read_manifest(directory: Path) -> Manifest:
    """Read the manifest; raises `ArchiveInvalid`."""
    path = directory / MANIFEST
    with suppress(FileNotFoundError, NotADirectoryError):
        if path.stat().st_size > MAX_MANIFEST_BYTES:
            raise ArchiveInvalid(f"{path} is too long to be a manifest.")
        return Manifest.from_json(path.read_bytes())
    raise ArchiveInvalid(
        f"There is no backup in {directory}: it has no {MANIFEST}, which is written last."
    )


def verify(directory: Path, name: str, part: FilePart) -> None:
    """Return if a file is unchanged, and its lines can be read; it is read once.

    Raises:
        ArchiveInvalid: It is missing or differs, or has a line that `read_lines` refuses.
    """
    path = directory / name
    with suppress(FileNotFoundError), path.open("rb") as raw:
        file = _HashedFile(raw)
        deque(_lines(file, path.name, part.lines), 0)
        if (file.length, file.digest()) == (part.bytes, part.sha256):
            return
        raise ArchiveInvalid(f"{name} is damaged: its SHA-256 is not the one in {MANIFEST}.")
    raise ArchiveInvalid(f"{name} is missing.")


class _HashedFile:
    """A file that is read from its beginning, with the hash of the data read so far."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self.length = 0

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._digest.update(data)
        self.length += len(data)
        return data

    def digest(self) -> str:
        return self._digest.hexdigest()


def read_lines(path: Path, lines: int) -> Iterator[Any]:
    """Yield the lines of a verified file, with one in memory at a time.

    Args:
        path: The file.
        lines: Their number, by the manifest.

    Raises:
        ArchiveInvalid: A line is too long or not JSON, or there are more or fewer.
    """
    return _lines(path, path.name, lines)


def _lines(source: Path | _HashedFile, name: str, lines: int) -> Iterator[Any]:
    number = 0
    try:
        with gzip.open(cast("Path", source), "rb") as stream:  # both can be opened
            file = cast("IO[bytes]", stream)
            # Bounded: a small compressed file can hold lines that fill the memory, or never end.
            while line := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                if number > lines:
                    raise ArchiveInvalid(f"{name} has more lines than {MANIFEST} says.")
                if len(line) > MAX_LINE_BYTES:
                    raise ArchiveInvalid(f"Line {number} of {name} is too long.")
                yield orjson.loads(line)
    # zlib's own error is not a subclass of the others.
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise ArchiveInvalid(f"{name} is damaged after line {number}.") from error
    if number < lines:
        raise ArchiveInvalid(f"{name} has fewer lines than {MANIFEST} says.")


def _length_and_digest(path: Path) -> tuple[int, str]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return file.tell(), digest


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
