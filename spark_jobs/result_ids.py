"""Ids of the rows of results: digests, because ids of records may be invalid as ids of objects.

A result can be written into a class. Ids of records in files, and of pieces of lines, have any
length and any characters, including `/`.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as f

__all__ = ["result_id", "result_id_column", "result_ids"]

_SEPARATOR: Final = "\0"
_DIGITS: Final = 32


def result_id(*names: str) -> str:
    """Return the id of a row, determined by the sequence of names, in every run."""
    return sha256(_SEPARATOR.join(names).encode()).hexdigest()[:_DIGITS]


def result_ids(*names: pa.ChunkedArray) -> pa.Array:
    """Return the ids of rows whose names are in Arrow columns without nulls."""
    joined = pc.binary_join_element_wise(*names, _SEPARATOR)
    return pa.array([result_id(text) for text in joined.to_pylist()], pa.string())


def result_id_column(*names: Column | str) -> Column:
    """Return a column of ids by columns of names; null if a name is missing."""
    first, *remaining = names
    parts = (part for name in remaining for part in (f.lit(_SEPARATOR), name))
    return f.substring(f.sha2(f.concat(first, *parts), 256), 1, _DIGITS).alias("id")
