"""Flattens JSON to paths: `a.b` is a member, `a[]` an element; deeper values stay JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeAlias

import pyarrow as pa

from mediator.catalogue.storable import storable_text
from spark_jobs.profiling.canonical import CellType

__all__ = ["FLATTENED", "MAX_DEPTH", "flatten", "flatten_batches"]

MAX_DEPTH: Final = 16
"""Maximum nesting of flattened objects and lists."""

_Row: TypeAlias = tuple[int, str, str, str, str | None]
_BATCH_ROWS: Final = 16_384
FLATTENED: Final = pa.schema(
    [
        ("row", pa.int64()),
        ("field", pa.string()),
        ("path", pa.string()),
        ("type", pa.string()),
        ("text", pa.string()),
    ]
)


class _Digits(str):
    """A number in its written form, without rounding."""

    __slots__ = ()


def flatten_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Convert columns `row`, `field` and `json` to a row for each value."""
    for batch in batches:
        rows: list[_Row] = []
        columns = (batch.column(name).to_pylist() for name in ("row", "field", "json"))
        for row, field, text in zip(*columns, strict=True):
            rows += ((row, field, *cell) for cell in flatten(field, text))
            if len(rows) >= _BATCH_ROWS:
                yield _batch(rows)
                rows = []
        if rows:
            yield _batch(rows)


def flatten(path: str, text: str) -> Iterator[tuple[str, str, str | None]]:
    """Yield path, type and text of each scalar in a JSON text.

    NUL and unpaired surrogates, which JSON can escape, become U+FFFD, also in names: reports cannot
    store NUL, and Arrow cannot store surrogates.
    """
    for inner, type_, value in _flatten_text(path, text):
        yield storable_text(inner), type_, None if value is None else storable_text(value)


def _flatten_text(path: str, text: str) -> Iterator[tuple[str, str, str | None]]:
    try:
        value = json.loads(text, parse_int=_Digits, parse_float=_Digits, parse_constant=str)
    except (ValueError, RecursionError):
        yield path, CellType.TEXT, text
        return
    yield from _flatten(path, value, 0)


def _flatten(path: str, value: Any, depth: int) -> Iterator[tuple[str, str, str | None]]:
    if not isinstance(value, dict | list):
        yield path, *_scalar(value)
        return
    if depth == MAX_DEPTH:
        yield path, CellType.TEXT, json.dumps(value, ensure_ascii=False, sort_keys=True)
        return
    members = value.items() if isinstance(value, dict) else [(None, item) for item in value]
    if not members:
        yield path, CellType.EMPTY, None
    for name, member in members:
        inner = f"{path}[]" if name is None else f"{path}.{name}"
        yield from _flatten(inner, member, depth + 1)


def _scalar(value: Any) -> tuple[str, str | None]:
    match value:
        case None:
            return CellType.EMPTY, None
        case bool():
            return CellType.BOOLEAN, "true" if value else "false"
        case _Digits():
            return CellType.NUMBER, str(value)
    return CellType.TEXT, value


def _batch(rows: list[_Row]) -> pa.RecordBatch:
    return pa.record_batch(list(zip(*rows, strict=True)), schema=FLATTENED)
