"""Results of runs: immutable Parquet files, read in pages or streamed in one of four formats."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal, Protocol, Self, TypeAlias

import orjson
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from spark_jobs.runner.port import ColumnType

__all__ = ["FORMATS", "Position", "ResultFiles", "ResultFormat"]

ResultFormat: TypeAlias = Literal["csv", "json", "parquet", "arrow"]
"""json is one object on each line, arrow the streaming format of Arrow's IPC."""

FORMATS: Final[dict[str, ResultFormat]] = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
    ".arrow": "arrow",
}
"""Formats by suffix."""

Position: TypeAlias = tuple[int, int]
"""The number of a file, and of a row in it; ``(0, 0)`` is the beginning."""

_ROWS: Final = 8_192


class ResultFiles:
    """The result of a run: Parquet files of a directory, which never change.

    Raises:
        FileNotFoundError: They are no longer there.
    """

    def __init__(self, directory: Path) -> None:
        self._files = sorted(directory.glob("*.parquet"))
        if not self._files:
            raise FileNotFoundError(directory)

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return pq.read_schema(self._files[0]).remove_metadata()

    @property
    def columns(self) -> dict[str, ColumnType]:
        """The columns, by what their values are as JSON."""
        return {field.name: _column_type(field.type) for field in self.schema}

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return sum(pq.read_metadata(file).num_rows for file in self._files)

    def page(self, after: Position, limit: int) -> tuple[list[dict[str, Any]], Position | None]:
        """Return rows from a position on, `limit` at most, and the position behind them.

        The latter is None if there is nothing behind them.
        """
        number, row = after
        rows: list[dict[str, Any]] = []
        while number < len(self._files) and len(rows) < limit:
            with pq.ParquetFile(self._files[number]) as file:
                page = _rows(file, row, limit - len(rows))
                rows += page
                row += len(page)
                if row >= file.metadata.num_rows:
                    number, row = number + 1, 0
        return rows, (number, row) if number < len(self._files) else None

    def stream(self, format_: ResultFormat) -> Iterator[bytes]:
        """Yield the whole result in a format; never more than a batch of it is in memory."""
        sink = _Sink()
        with _WRITERS[format_](sink, self.schema) as writer:
            for batch in self._batches():
                writer.write_batch(batch)
                yield from sink.take()
        yield from sink.take()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for path in self._files:
            with pq.ParquetFile(path) as file:
                yield from file.iter_batches(_ROWS)


class _Sink:
    """A file that hands on what is written to it."""

    closed = False

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, data: Any) -> int:
        piece = bytes(data)
        self._pieces.append(piece)
        return len(piece)

    def flush(self) -> None:
        """Do nothing: there is no buffer."""

    def close(self) -> None:
        """Do nothing: what was written is still to be taken."""

    def take(self) -> Iterator[bytes]:
        pieces, self._pieces = self._pieces, []
        return (piece for piece in pieces if piece)


class _Writer(Protocol):
    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

    def write_batch(self, batch: pa.RecordBatch) -> None: ...


class _JsonLines:
    def __init__(self, sink: _Sink, _: pa.Schema) -> None:
        self._sink = sink

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Do nothing: lines have no end of their own."""

    def write_batch(self, batch: pa.RecordBatch) -> None:
        lines = (orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in _plain(batch))
        self._sink.write(b"".join(lines))


class _Csv:
    """CSV holds scalars: what has a structure is written as JSON, binary as base64."""

    def __init__(self, sink: _Sink, schema: pa.Schema) -> None:
        self._odd = [i for i, field in enumerate(schema) if not _fits_csv(field.type)]
        for i in self._odd:
            schema = schema.set(i, pa.field(schema[i].name, pa.string()))
        self._schema = schema
        self._writer = pa_csv.CSVWriter(sink, schema)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._writer.close()

    def write_batch(self, batch: pa.RecordBatch) -> None:
        columns = list(batch.columns)
        for i in self._odd:
            columns[i] = pa.array([_text(value) for value in columns[i].to_pylist()], pa.string())
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))


_WRITERS: Final[dict[ResultFormat, Callable[[_Sink, pa.Schema], _Writer]]] = {
    "csv": _Csv,
    "json": _JsonLines,
    "parquet": pq.ParquetWriter,
    "arrow": pa.ipc.new_stream,
}


def _rows(file: pq.ParquetFile, start: int, count: int) -> list[dict[str, Any]]:
    """Read rows of a file; row groups before the first one are not touched."""
    sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
    first = 0
    while first < len(sizes) and sizes[first] <= start:
        start -= sizes[first]
        first += 1
    groups = list(range(first, len(sizes)))
    if not groups:
        return []
    batches = file.iter_batches(min(_ROWS, start + count), row_groups=groups)
    return list(islice((row for batch in batches for row in _plain(batch)), start, start + count))


def _plain(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return rows as JSON values: decimals and times as text, binary as base64."""
    columns = [_column(column) for column in batch.columns]
    names = batch.schema.names
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _column(column: pa.Array) -> list[Any]:
    values: list[Any] = column.to_pylist()
    simple = pa.types.is_integer(column.type) or pa.types.is_string(column.type)
    return values if simple else [_json(value) for value in values]


def _json(value: Any) -> Any:
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case Decimal():
            return str(value)
        case datetime():
            aware = value if value.tzinfo else value.replace(tzinfo=UTC)
            return aware.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case dict():
            return {str(name): _json(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_json(inner) for inner in value]
    return value


def _column_type(type_: pa.DataType) -> ColumnType:
    """Return what `_json` makes of values of a type."""
    types: tuple[tuple[Callable[[pa.DataType], bool], ColumnType], ...] = (
        (pa.types.is_integer, "integer"),
        (pa.types.is_floating, "number"),
        (pa.types.is_boolean, "boolean"),
        (pa.types.is_struct, "object"),
        (pa.types.is_nested, "array"),
    )
    return next((name for holds, name in types if holds(type_)), "string")


def _text(value: Any) -> str | None:
    plain = _json(value)
    return plain if plain is None or isinstance(plain, str) else orjson.dumps(plain).decode()


def _fits_csv(type_: pa.DataType) -> bool:
    return not (pa.types.is_nested(type_) or pa.types.is_binary(type_))
