"""Reads small inputs as tables without Spark; complex ones are left to Spark and its messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from spark_jobs.runner.port import Input, InputUnfit
from spark_jobs.runner.specification import FileSource
from spark_jobs.sources.classes import read_class_table
from spark_jobs.texts import as_text, has_text

__all__ = ["names_in_job", "read_table", "requested_fields"]

_MAX_BYTES: Final = 256 * 2**20
"""Maximum bytes of a file: rows can be long."""
_INEXACT: Final = 2**63


def read_table(input_: Input, check: Callable[[], None]) -> pa.Table | None:
    """Read an input: `id` and the requested fields; `check` is called after each page of a class.

    Returns:
        None: it needs Spark, because it has more than `input_.local_rows` rows, or is too complex.

    Raises:
        InputUnfit: Fields are missing.
        MediatorError: A system that holds a class does not answer.
    """
    match input_.source:
        case FileSource() as source:
            table = _read_file(source, input_.local_rows)
        case source:
            return read_class_table(input_, source, check)
    if table is None:
        return None
    table = table.rename_columns(names_in_job(input_, table.column_names))
    fields = requested_fields(input_, table.column_names)
    if not has_text(table.column("id").type):
        return None
    return table.select(["id", *fields]).set_column(0, "id", as_text(table.column("id")))


def requested_fields(input_: Input, columns: list[str]) -> tuple[str, ...]:
    """Return the requested fields of an identified input with these columns.

    Raises:
        InputUnfit: Some of them, or `id`, are missing.
    """
    fields = input_.fields if input_.fields is not None else tuple(c for c in columns if c != "id")
    if missing := [name for name in ("id", *fields) if name not in columns]:
        raise InputUnfit(_missing_reason(input_, missing, columns))
    return fields


def names_in_job(input_: Input, columns: list[str]) -> list[str]:
    """Return the names of a table's columns in the job.

    Raises:
        InputUnfit: A renamed column is missing, or two columns get the same name.
    """
    rename = input_.source.rename
    if missing := [name for name in rename if name not in columns]:
        raise InputUnfit(_missing_reason(input_, missing, columns))
    names = [rename.get(name, name) for name in columns]
    if duplicate := next((name for name, count in Counter(names).items() if count > 1), None):
        raise InputUnfit(f"{input_.name} would have two columns {duplicate}: rename the other one.")
    return names


def _missing_reason(input_: Input, missing: list[str], columns: list[str]) -> str:
    existing = ", ".join(columns)
    return f"{input_.name} has no column {', '.join(missing)}; it has: {existing}."


def _read_file(source: FileSource, rows: int) -> pa.Table | None:
    path = Path(source.path)
    if not path.is_file() or path.stat().st_size > _MAX_BYTES:
        return None
    try:
        table = _FORMATS[source.format](path, rows)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError, OverflowError):
        return None
    if table is None or max(Counter(table.column_names).values(), default=0) > 1:
        return None
    return table


def _read_csv(path: Path, rows: int) -> pa.Table | None:
    """Read CSV; every value is a string, and an empty unquoted value is null."""
    with path.open("rb") as file:
        names = pa_csv.open_csv(file, parse_options=_RFC_4180).schema.names
    convert = pa_csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    batches: list[pa.RecordBatch] = []
    with pa_csv.open_csv(path, parse_options=_RFC_4180, convert_options=convert) as reader:
        for batch in reader:
            batches.append(batch)
            if sum(read.num_rows for read in batches) > rows:
                return None
        return pa.Table.from_batches(batches, reader.schema)


_RFC_4180: Final = pa_csv.ParseOptions(newlines_in_values=True)


def _read_json(path: Path, rows: int) -> pa.Table | None:
    with path.open("rb") as file:
        objects = list(islice((orjson.loads(line) for line in file if line.strip()), rows + 1))
    if len(objects) > rows or not all(isinstance(row, dict) for row in objects):
        return None
    names = sorted(set(chain.from_iterable(objects)))
    return pa.table({name: _column([row.get(name) for row in objects]) for name in names})


def _column(values: list[Any]) -> pa.Array:
    """Return values of one type that Spark would also infer.

    Raises:
        ValueError: They have no such type.
        OverflowError: An integer needs more than 64 bits with its sign.
    """
    types = {type(value) for value in values} - {type(None)}
    if types in ({float}, {int, float}):
        if any(value is not None and abs(value) >= _INEXACT for value in values):
            raise ValueError(values)  # perhaps integers of more than 64 bits
        return pa.array(values, pa.float64())
    if len(types) == 1 and types <= _SCALARS.keys():
        return pa.array(values, _SCALARS[types.pop()])
    raise ValueError(types)


_SCALARS: Final[Mapping[type, pa.DataType]] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
}


def _read_parquet(path: Path, rows: int) -> pa.Table | None:
    with pq.ParquetFile(path) as file:
        return file.read() if file.metadata.num_rows <= rows else None


_FORMATS: Final[Mapping[str, Callable[[Path, int], pa.Table | None]]] = {
    "csv": _read_csv,
    "json": _read_json,
    "parquet": _read_parquet,
}
