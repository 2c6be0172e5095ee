"""Results as Parquet files: what each is the result of, and the tuples that it has."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_jobs.standing.tuples import LAST_S, number_column, values_column

__all__ = ["RESULTS", "ResultFile"]

RESULTS: Final = pa.schema(
    [
        ("query", pa.string()),
        ("time_s", pa.float64()),
        ("numbers", pa.list_(pa.int64())),
        ("tuples", pa.large_string()),
    ]
)
"""The query; the latest time of the tuples; their positions, in the order of their streams' names;
and their values, as a JSON object by stream."""


class ResultFile:
    """A file of results, which appears whole, or not at all, and only if there are any."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._temporary = path.with_name(f".{path.name}.{uuid4().hex}")
        self._writer: pq.ParquetWriter | None = None
        self.rows = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._writer is None:
            return
        try:
            self._writer.close()
            if error is None:
                with self._temporary.open("rb") as file:
                    os.fsync(file.fileno())
                self._temporary.replace(self._path)
        finally:
            self._temporary.unlink(missing_ok=True)

    def write(self, rows: pa.Table, relations: Sequence[str], queries: Sequence[str]) -> None:
        """Write rows as results of each of some queries."""
        columns = [
            rows.column(LAST_S),
            _lists([rows.column(number_column(each)) for each in relations]),
            _objects(rows, relations),
        ]
        for query in queries:
            names = pa.repeat(query, len(rows))
            table = pa.table([names, *columns], schema=RESULTS)
            if self._writer is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._writer = pq.ParquetWriter(self._temporary, RESULTS, compression="lz4")
            self._writer.write_table(table)
            self.rows += len(table)


def _lists(columns: Sequence[pa.ChunkedArray]) -> pa.ListArray:
    """Return lists with an element of each column."""
    values = np.stack([each.to_numpy() for each in columns], axis=1)
    offsets = np.arange(0, values.size + 1, len(columns), dtype=np.int32)
    return pa.ListArray.from_arrays(offsets, values.ravel())


def _objects(rows: pa.Table, relations: Sequence[str]) -> pa.ChunkedArray:
    """Return the values of each relation as one JSON object; names of streams need no escape."""
    pieces: list[Any] = []
    for number, each in enumerate(relations):
        opening = "," if number else "{"
        pieces += [pa.scalar(f'{opening}"{each}":', pa.large_string())]
        pieces += [rows.column(values_column(each))]
    end, separator = (pa.scalar(text, pa.large_string()) for text in ("}", ""))
    return pc.binary_join_element_wise(*pieces, end, separator)
