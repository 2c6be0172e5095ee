"""Results as Parquet files: each result's query, and its tuples."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_jobs.atomic_file import atomic_file
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
"""The query; the latest time of the tuples; their positions, ordered by the names of streams; and
their values, as a JSON object by stream."""


class ResultFile:
    """A file of results, which appears atomically, and only if there are results."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open = ExitStack()
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
        self._open.__exit__(kind, error, traceback)

    def write(self, rows: pa.Table, relations: Sequence[str], queries: Sequence[str]) -> None:
        """Write rows as results of each of some queries."""
        columns = [
            rows.column(LAST_S),
            _lists([rows.column(number_column(relation)) for relation in relations]),
            _objects(rows, relations),
        ]
        for query in queries:
            names = pa.repeat(query, len(rows))
            table = pa.table([names, *columns], schema=RESULTS)
            if self._writer is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                file = self._open.enter_context(atomic_file(self._path))
                writer = pq.ParquetWriter(file, RESULTS, compression="lz4")
                self._writer = self._open.enter_context(writer)
            self._writer.write_table(table)
            self.rows += len(table)


def _lists(columns: Sequence[pa.ChunkedArray]) -> pa.ListArray:
    """Return lists with one element of each column."""
    values = np.stack([column.to_numpy() for column in columns], axis=1)
    offsets = np.arange(0, values.size + 1, len(columns), dtype=np.int32)
    return pa.ListArray.from_arrays(offsets, values.ravel())


def _objects(rows: pa.Table, relations: Sequence[str]) -> pa.ChunkedArray:
    """Return the values of all relations as one JSON object; names of streams need no escape."""
    pieces: list[Any] = []
    for number, relation in enumerate(relations):
        opening = "," if number else "{"
        pieces += [pa.scalar(f'{opening}"{relation}":', pa.large_string())]
        pieces += [rows.column(values_column(relation))]
    end, separator = (pa.scalar(text, pa.large_string()) for text in ("}", ""))
    return pc.binary_join_element_wise(*pieces, end, separator)
