"""Results of runs: immutable Parquet files, read in pages or streamed in one of four formats."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import orjson
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from spark_jobs.runner.port import ColumnType

__all__ = ["FORMATS", "Position", "ResultFiles", "ResultFormat"]

ResultFormat: TypeAlias = Literal["csv", "json", "parquet", "arrow"]
"""json is JSON lines, arrow the streaming format of Arrow IPC."""

FORMATS: Final[dict[str, ResultFormat]] = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
    ".arrow": "arrow",
}

Position: TypeAlias = tuple[int, int]
"""The number of a file, and of a row in it; ``(0, 0)`` is the start."""

_BATCH_ROWS: Final = 8_192


class ResultFiles:
    """The result of a run: a directory of immutable Parquet files.

    Raises:
        FileNotFoundError: They were removed.
    """

    def __init__(self, directory: Path) -> None:
        self._files = sorted(directory.glob("*.parquet"))
        if not self._files:
            raise FileNotFoundError(directory)

    @property
    def schema(self) -> pa.Schema:
        return pq.read_schema(self._files[0]).remove_metadata()

    @property
    def columns(self) -> dict[str, ColumnType]:
        return {field.name: _column_type(field.type) for field in self.schema}

    @property
    def rows(self) -> int:
        return sum(pq.read_metadata(file).num_rows for file in self._files)

    def page(self, after: Position, limit: int) -> tuple[list[dict[str, Any]], Position | None]:
        """Return at most `limit` rows from a position, and the next position if rows remain."""
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

    def batches(self, columns: Sequence[str]) -> Iterator[list[dict[str, Any]]]:
        """Yield some columns of all rows, with at most one batch in memory."""
        for batch in self._batches(columns):
            yield _plain(batch)

    def stream(self, format_: ResultFormat) -> Iterator[bytes]:
        """Yield the result in a format, with at most one batch in memory."""
        if format_ == "json":
            for batch in self._batches():
                rows = _plain(batch)
                yield b"".join(orjson.dumps(r, option=orjson.OPT_APPEND_NEWLINE) for r in rows)
            return
        sink, empty = _Sink(), pa.RecordBatch.from_pylist([], self.schema)
        with _WRITERS[format_](sink, _fit_format(empty, format_).schema) as writer:
            for batch in self._batches():
                writer.write_batch(_fit_format(batch, format_))
                yield from sink.take()
        yield from sink.take()

    def _batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        names = None if columns is None else [*columns]
        for path in self._files:
            with pq.ParquetFile(path) as file:
                yield from file.iter_batches(_BATCH_ROWS, columns=names)


class _Sink:
    """A writable file whose content is taken in pieces."""

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
        """Do nothing: written pieces remain to be taken."""

    def take(self) -> Iterator[bytes]:
        pieces, self._pieces = self._pieces, []
        return (piece for piece in pieces if piece)


_WRITERS: Final[Mapping[ResultFormat, Callable[[_Sink, pa.Schema], Any]]] = {
    "csv": pa_csv.CSVWriter,
    "parquet": pq.ParquetWriter,
    "arrow": pa.ipc.new_stream,
}


def _fit_format(batch: pa.RecordBatch, format_: ResultFormat) -> pa.RecordBatch:
    """Return a batch that fits the format; for CSV, nested values are JSON and binary is base64."""
    for i, field in enumerate(batch.schema if format_ == "csv" else ()):
        if not _fits_csv(field.type):
            texts = [_text(value) for value in batch.column(i).to_pylist()]
            batch = batch.set_column(i, field.name, pa.array(texts, pa.string()))
    return batch


def _rows(file: pq.ParquetFile, start: int, count: int) -> list[dict[str, Any]]:
    """Read rows of a file, without the row groups before the first row.

    Earlier rows of its row group are decoded, but not converted to objects.
    """
    sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
    first = 0
    while first < len(sizes) and sizes[first] <= start:
        start -= sizes[first]
        first += 1
    groups = list(range(first, len(sizes)))
    if not groups:
        return []
    rows: list[dict[str, Any]] = []
    for batch in file.iter_batches(min(_BATCH_ROWS, start + count), row_groups=groups):
        skip = min(start, batch.num_rows)
        start -= skip
        rows += _plain(batch.slice(skip, count - len(rows)))
        if len(rows) == count:
            break
    return rows


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
            return {str(name): _json(item) for name, item in value.items()}
        case list() | tuple():
            return [_json(item) for item in value]
    return value


def _column_type(type_: pa.DataType) -> ColumnType:
    """Return the JSON type of what `_json` returns for values of a type."""
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
