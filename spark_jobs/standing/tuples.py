"""Tuples as Arrow tables: a row joins the tuples of one or more relations.

For each relation it has the feed position and the values, as JSON; for compared attributes also a
key, which is the same text for equal values and null if nothing is equal, and a hash of the key.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import isfinite
from typing import Any, Final

import numpy as np
import orjson
import pandas as pd  # type: ignore[import-untyped]  # it has no types
import pyarrow as pa
import pyarrow.compute as pc

from mediator.standing.model import Attribute
from spark_jobs.runner.port import InputUnfit

__all__ = [
    "FIRST_S",
    "LAST_NUMBER",
    "LAST_S",
    "LAST_STREAM",
    "TIMES",
    "check_tuples",
    "code_column",
    "column_of",
    "key_column",
    "key_columns",
    "members_of",
    "number_column",
    "sorted_rows",
    "stream_rows",
    "values_column",
    "with_keys",
]

FIRST_S: Final = "first_s"
LAST_S: Final = "last_s"
LAST_NUMBER: Final = "last_number"
LAST_STREAM: Final = "last_stream"
TIMES: Final = (FIRST_S, LAST_S, LAST_NUMBER, LAST_STREAM)
"""The times of the earliest and of the latest tuple of a row; and the last tuple to arrive: its
position, and the rank of its stream among equal positions."""

_INPUT: Final = ["stream", "number", "time_s", "values"]

_MAX_NAME_CHARACTERS: Final = 100
"""Maximum characters of a wrong name in an error."""

_MAX_INTEGER: Final = 2.0**64
"""JSON integers are below it; a larger number is a double in any notation."""


def number_column(relation: str) -> str:
    return f"{relation}:number"


def values_column(relation: str) -> str:
    return f"{relation}:values"


def key_column(attribute: Attribute) -> str:
    return str(attribute)


def code_column(attribute: Attribute) -> str:
    return f"#{attribute}"


def key_columns(attributes: Iterable[Attribute]) -> list[str]:
    return [name for at in attributes for name in (key_column(at), code_column(at))]


def members_of(relations: Iterable[str]) -> list[str]:
    """Return the columns of each relation in a row."""
    return [
        name
        for relation in sorted(relations)
        for name in (number_column(relation), values_column(relation))
    ]


def check_tuples(rows: pa.Table, streams: Collection[str]) -> pa.Table:
    """Check tuples, and return their columns.

    Raises:
        InputUnfit: A member is missing, or a stream is not declared.
    """
    rows = rows.select(_INPUT)
    for name in _INPUT:
        if rows.column(name).null_count:
            raise InputUnfit(f"a tuple has no {name}")
    if not pc.all(pc.is_finite(rows.column("time_s"))).as_py() and len(rows):
        raise InputUnfit("a tuple has a time that is no number")
    unknown = sorted(set(pc.unique(rows.column("stream")).to_pylist()) - set(streams))
    if unknown:
        raise InputUnfit(f"there is no stream {unknown[0][:_MAX_NAME_CHARACTERS]}")
    return rows


def _parse_values(stream: str, values: pa.ChunkedArray, numbers: pa.ChunkedArray) -> list[Any]:
    """Parse values.

    Raises:
        InputUnfit: A value is not a JSON object.
    """
    texts = values.to_pylist()
    try:
        parsed = list(map(orjson.loads, texts))
        if set(map(type, parsed)) <= {dict}:
            return parsed
    except (orjson.JSONDecodeError, TypeError):
        pass
    number = next(n for n, text in enumerate(texts) if not _is_object(text))
    raise InputUnfit(f"tuple {numbers[number]} of {stream} has values that are no JSON object")


def stream_rows(
    stream: str, rank: int, rows: pa.Table, attributes: Sequence[Attribute]
) -> pa.Table:
    """Return tuples of one stream, read with `number`, `time_s` and `values`, as rows with keys."""
    numbers, times = rows.column("number"), rows.column("time_s")
    parsed = _parse_values(stream, rows.column("values"), numbers)
    columns = {
        FIRST_S: times,
        LAST_S: times,
        LAST_NUMBER: numbers,
        LAST_STREAM: pa.array(np.full(len(rows), rank, np.int16)),
        number_column(stream): numbers,
        values_column(stream): rows.column("values").cast(pa.large_string()),
    }
    for at in attributes:
        keys = _keys_of(stream, at.name, parsed)
        columns |= {key_column(at): keys, code_column(at): _codes_of(keys)}
    return pa.table(columns)


def _keys_of(stream: str, name: str, parsed: Sequence[Mapping[str, Any]]) -> pa.Array:
    """Return the keys by which values of an attribute are compared; null: equals nothing."""
    column = [values.get(name) for values in parsed]
    kinds = set(map(type, column)) - {type(None)}
    if kinds == {str}:
        return _prefix("s", pa.array(column, pa.large_string()))
    if kinds == {int} and max(filter(None, column), default=0) < 2**63:
        return _prefix("n", pa.array(column, pa.int64()).cast(pa.large_string()))
    if not kinds <= {str, int, float, bool}:
        raise InputUnfit(f"attribute {name} of {stream} has a value that is no scalar")
    return pa.array([_key(value) for value in column], pa.large_string())


def with_keys(rows: pa.Table, attributes: Iterable[Attribute]) -> pa.Table:
    """Add missing keys to rows, computed from their values."""
    missing = [at for at in attributes if key_column(at) not in rows.column_names]
    for relation in sorted({at.relation for at in missing}):
        numbers = rows.column(number_column(relation))
        parsed = _parse_values(relation, rows.column(values_column(relation)), numbers)
        for at in (attribute for attribute in missing if attribute.relation == relation):
            keys = _keys_of(relation, at.name, parsed)
            rows = rows.append_column(key_column(at), keys)
            rows = rows.append_column(code_column(at), _codes_of(keys))
    return rows


def _codes_of(keys: pa.Array) -> pa.Array:
    """Return a hash of each key, equal in all processes; zero for null."""
    codes = pd.util.hash_array(keys.to_numpy(zero_copy_only=False), categorize=False)
    codes[np.asarray(keys.is_null())] = 0
    return pa.array(codes)


def column_of(rows: pa.Table, name: str) -> np.ndarray[Any, Any]:
    """Return a column without nulls, without a copy if it is one chunk."""
    column = rows.column(name)
    values: np.ndarray[Any, Any]
    values = column.chunk(0).to_numpy() if column.num_chunks == 1 else column.to_numpy()
    return values


def sorted_rows(rows: pa.Table, relations: Iterable[str]) -> pa.Table:
    """Sort rows into an order independent of their arrival."""
    names = [number_column(relation) for relation in sorted(relations)]
    positions = [column_of(rows, name) for name in reversed(names)]
    return rows.take(np.lexsort([column_of(rows, LAST_S), column_of(rows, FIRST_S), *positions]))


def _prefix(prefix: str, texts: pa.Array) -> pa.Array:
    first, separator = (pa.scalar(text, pa.large_string()) for text in (prefix, ""))
    return pc.binary_join_element_wise(first, texts, separator)


def _key(value: Any) -> str | None:
    """Return the same text for equal values: 1 equals 1.0 in JSON, but true equals no number."""
    match value:
        case None:
            return None
        case bool():
            return f"b{value:d}"
        case str():
            return f"s{value}"
        case float() if isfinite(value) and value.is_integer() and abs(value) < _MAX_INTEGER:
            return f"n{int(value)}"
        case _:
            return f"n{value!r}"


def _is_object(text: str | None) -> bool:
    try:
        return isinstance(orjson.loads(text or ""), dict)
    except orjson.JSONDecodeError:
        return False
