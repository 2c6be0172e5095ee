"""Segments: immutable files of stored rows, with indexes by the hashes of keys.

A file is complete before anything names it, and immutable afterwards. So any number of tasks can
map it into memory, and a repeated task writes the same file again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from mediator.standing.model import Attribute
from spark_jobs.atomic_file import atomic_file
from spark_jobs.commit_directory import StateMismatch
from spark_jobs.standing.tuples import (
    FIRST_S,
    LAST_S,
    code_column,
    column_of,
    key_column,
    with_keys,
)

__all__ = ["FORMAT", "Index", "StoredRows", "read_segment", "write_segment"]

FORMAT: Final = 1
"""The version of segments and commits; other versions cannot read them."""

_FORMAT_KEY: Final = b"portolan.standing"
_COMPARABLE_KEY: Final = "comparable:"
_MAX_MAPPED: Final = 512
"""Maximum files that a process keeps mapped; a dropped file's space is free once unmapped."""


@dataclass(frozen=True, slots=True)
class Index:
    """Rows with a key, in the order of the key's hash.

    Attributes:
        codes: The hashes, in order.
        rows: The row of each hash.
    """

    codes: np.ndarray[Any, Any]
    rows: np.ndarray[Any, Any]


class StoredRows:
    """The rows of a segment.

    Attributes:
        is_new: Whether they arrived in the current batch.
    """

    def __init__(self, table: pa.Table, *, is_new: bool) -> None:
        self.table = table
        self.is_new = is_new
        self._indexes: dict[Attribute, Index] = {}

    @cached_property
    def first_s(self) -> np.ndarray[Any, Any]:
        return column_of(self.table, FIRST_S)

    @cached_property
    def last_s(self) -> np.ndarray[Any, Any]:
        return column_of(self.table, LAST_S)

    def column(self, attribute: Attribute, name: str) -> pa.ChunkedArray:
        """Return the keys of an attribute, or their hashes; compute those an older plan lacked."""
        self.table = with_keys(self.table, [attribute])
        return self.table.column(name)

    def index(self, attribute: Attribute) -> Index:
        if attribute not in self._indexes:
            self._indexes[attribute] = self._read_index(attribute)
        return self._indexes[attribute]

    def _read_index(self, attribute: Attribute) -> Index:
        name = _sorted_codes(attribute)
        if name not in self.table.column_names:
            return index_of(
                self.column(attribute, key_column(attribute)),
                self.column(attribute, code_column(attribute)),
            )
        metadata = self.table.schema.metadata
        comparable = int(metadata[f"{_COMPARABLE_KEY}{attribute}".encode()])
        rows = column_of(self.table, _sorted_rows(attribute))
        return Index(column_of(self.table, name)[:comparable], rows[:comparable])


def index_of(keys: pa.ChunkedArray, codes: pa.ChunkedArray) -> Index:
    hashes = codes.to_numpy()
    comparable = np.flatnonzero(keys.is_valid().to_numpy())
    # Merged rows consist of sorted runs, which a stable sort exploits.
    order = comparable[np.argsort(hashes[comparable], kind="stable")]
    return Index(hashes[order], order.astype(np.int32))


def write_segment(path: Path, rows: pa.Table, indexed: Iterable[Attribute]) -> None:
    """Write rows atomically, with indexes by some attributes.

    Raises:
        OSError: It cannot be written.
    """
    metadata = {_FORMAT_KEY: str(FORMAT).encode()}
    attributes = list(indexed)
    rows = with_keys(rows, attributes).combine_chunks()
    for at in attributes:
        index = index_of(rows.column(key_column(at)), rows.column(code_column(at)))
        metadata[f"{_COMPARABLE_KEY}{at}".encode()] = str(len(index.rows)).encode()
        rows = rows.append_column(_sorted_codes(at), _pad(index.codes, len(rows)))
        rows = rows.append_column(_sorted_rows(at), _pad(index.rows, len(rows)))
    path.parent.mkdir(parents=True, exist_ok=True)
    with (
        atomic_file(path) as file,
        pa.ipc.new_file(file, rows.schema.with_metadata(metadata)) as writer,
    ):
        writer.write_table(rows)


def read_segment(path: Path, *, is_new: bool = False) -> StoredRows:
    """Map a segment into memory.

    Raises:
        FileNotFoundError: It does not exist.
        StateMismatch: It has another version.
    """
    return StoredRows(_map(path), is_new=is_new) if is_new else _read_cached(path)


def merge_segments(segments: Sequence[StoredRows]) -> pa.Table:
    """Return all rows of some segments, without their indexes."""
    tables = []
    for segment in segments:
        names = [name for name in segment.table.column_names if name[0] not in _INDEX_COLUMNS]
        tables.append(segment.table.select(names).replace_schema_metadata())
    # Keys that only some plans store are recomputed when needed.
    common = [
        name for name in tables[0].column_names if all(name in at.column_names for at in tables)
    ]
    return pa.concat_tables([table.select(common) for table in tables])


@lru_cache(maxsize=_MAX_MAPPED)
def _read_cached(path: Path) -> StoredRows:
    return StoredRows(_map(path), is_new=False)


def _map(path: Path) -> pa.Table:
    with pa.memory_map(str(path)) as file:
        table = pa.ipc.open_file(file).read_all()
    metadata: Mapping[bytes, bytes] = table.schema.metadata or {}
    if metadata.get(_FORMAT_KEY) != str(FORMAT).encode():
        raise StateMismatch(f"{path} is not a state of version {FORMAT}")
    return table


_INDEX_COLUMNS: Final = "@^"


def _sorted_codes(attribute: Attribute) -> str:
    return f"@{attribute}"


def _sorted_rows(attribute: Attribute) -> str:
    return f"^{attribute}"


def _pad(values: np.ndarray[Any, Any], length: int) -> pa.Array:
    """Pad values with zeros to the length of a column."""
    padded = np.zeros(length, values.dtype)
    padded[: len(values)] = values
    return pa.array(padded)
