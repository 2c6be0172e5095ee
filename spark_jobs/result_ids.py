"""Ids of the rows of results: digests, because names of records may be no ids of objects.

A result may be written into a class. Ids of records in files, and of pieces of lines, are of any
length and hold any characters, `/` among them.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as f

__all__ = ["result_id", "result_id_column", "result_ids"]

_BETWEEN: Final = "\0"
_DIGITS: Final = 32


def result_id(*names: str) -> str:
    """Return the id of a row: the same for the same names, in their order, in every run."""
    return sha256(_BETWEEN.join(names).encode()).hexdigest()[:_DIGITS]


def result_ids(*names: pa.ChunkedArray) -> pa.Array:
    """Return the ids of rows whose names are in columns of Arrow, none of them missing."""
    joined = pc.binary_join_element_wise(*names, _BETWEEN)
    return pa.array([result_id(each) for each in joined.to_pylist()], pa.string())


def result_id_column(*names: Column | str) -> Column:
    """Return a column of ids by columns of names; it is null where one of these is missing."""
    first, *others = names
    rest = (part for name in others for part in (f.lit(_BETWEEN), name))
    return f.substring(f.sha2(f.concat(first, *rest), 256), 1, _DIGITS).alias("id")
