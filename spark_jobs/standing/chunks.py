"""Chunks: encoded tables of rows that stages exchange, for a store or for a hop.

Spark moves a chunk as one value, so exchanging rows needs no conversion of each row, and the rows
of all hops share one exchange, whatever their columns are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from spark_jobs.standing.tuples import sorted_rows

__all__ = ["CHUNKS", "REPORTS", "Chunk", "decode", "encode", "record_batch"]

CHUNKS: Final = pa.schema(
    [
        ("group", pa.int32()),
        ("level", pa.int32()),
        ("store", pa.int32()),
        ("hop", pa.int32()),
        ("route", pa.int32()),
        ("rows", pa.binary()),
    ]
)

REPORTS: Final = 2**31 - 1
"""The level of reports: no stage consumes them, so they remain at the end."""


class Chunk(NamedTuple):
    """Rows for a partition group, at a level.

    Attributes:
        store: The index of the layout that stores them; -1: they are for a hop.
        hop: The index of the hop.
        route: The index of one of its routes.
        rows: An encoded table, or a report.
    """

    group: int
    level: int
    store: int = -1
    hop: int = -1
    route: int = -1
    rows: bytes = b""


def encode(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue().to_pybytes())


def decode(chunks: Sequence[bytes], relations: Iterable[str]) -> pa.Table:
    """Return the rows of chunks, in an order independent of the chunks' order."""
    tables = [pa.ipc.open_stream(chunk).read_all() for chunk in chunks]
    return sorted_rows(pa.concat_tables(tables), relations)


def record_batch(chunks: Iterable[Chunk]) -> pa.RecordBatch:
    columns = list(zip(*chunks, strict=True)) or [()] * len(CHUNKS)
    return pa.record_batch(columns, schema=CHUNKS)
