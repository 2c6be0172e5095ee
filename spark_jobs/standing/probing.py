"""The kernel of a hop: joins rows with stored rows, by a sorted index of hashes.

Hashes find candidates, in blocks, so memory is bounded for any skew. The window, the order of
arrival and the keys themselves decide.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mediator.standing.model import Attribute
from spark_jobs.standing.hops import Hop
from spark_jobs.standing.segments import StoredRows
from spark_jobs.standing.tuples import (
    FIRST_S,
    LAST_NUMBER,
    LAST_S,
    LAST_STREAM,
    code_column,
    column_of,
    key_column,
    key_columns,
    members_of,
)

__all__ = ["probe"]

_BLOCK: Final = 2**16
"""Candidate pairs compared at once."""

_Array: TypeAlias = np.ndarray[Any, Any]


def probe(rows: pa.Table, stored: StoredRows, hop: Hop) -> Iterator[pa.Table]:
    """Join rows with stored rows; a stored row of this batch must have arrived earlier."""
    mine, theirs = hop.matches[0]
    codes = column_of(rows, code_column(mine))
    comparable = np.flatnonzero(rows.column(key_column(mine)).is_valid().to_numpy())
    index = stored.index(theirs)
    starts = np.searchsorted(index.codes, codes[comparable], "left")
    counts = np.searchsorted(index.codes, codes[comparable], "right") - starts
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    for first in range(0, total, _BLOCK):
        pairs = np.arange(first, min(first + _BLOCK, total))
        number = np.searchsorted(ends, pairs, "right")
        offset = pairs - (ends[number] - counts[number])
        left, right = comparable[number], index.rows[starts[number] + offset]
        joined = _join(rows, stored, hop, left, right)
        if len(joined):
            yield joined


def _join(rows: pa.Table, stored: StoredRows, hop: Hop, left: _Array, right: _Array) -> pa.Table:
    """Return the matching pairs, as one row each."""
    first_s = np.minimum(column_of(rows, FIRST_S)[left], stored.first_s[right])
    last_s = np.maximum(column_of(rows, LAST_S)[left], stored.last_s[right])
    is_match = last_s - first_s <= hop.order.join.window_s
    if stored.is_new:
        is_match &= _is_earlier(stored.table, right, rows, left)
    for mine, theirs in hop.matches[1:]:
        codes = stored.column(theirs, code_column(theirs))
        is_match &= column_of(rows, code_column(mine))[left] == codes.to_numpy()[right]
    left, right, first_s, last_s = (values[is_match] for values in (left, right, first_s, last_s))
    equal = _have_equal_keys(rows, stored, hop.matches, left, right)
    if not equal.all():
        left, right, first_s, last_s = (values[equal] for values in (left, right, first_s, last_s))
    return (
        _assemble(rows, stored, hop, left, right)
        .append_column(FIRST_S, pa.array(first_s))
        .append_column(LAST_S, pa.array(last_s))
    )


def _is_earlier(one: pa.Table, at: _Array, other: pa.Table, other_at: _Array) -> _Array:
    """Compare by feed position, and by stream for equal positions."""
    number, stream = column_of(one, LAST_NUMBER)[at], column_of(one, LAST_STREAM)[at]
    other_number, other_stream = (
        column_of(other, name)[other_at] for name in (LAST_NUMBER, LAST_STREAM)
    )
    earlier: _Array = (number < other_number) | ((number == other_number) & (stream < other_stream))
    return earlier


def _have_equal_keys(
    rows: pa.Table,
    stored: StoredRows,
    matches: Sequence[tuple[Attribute, Attribute]],
    left: _Array,
    right: _Array,
) -> _Array:
    """Compare keys, because different keys can have the same hash, and null equals nothing."""
    equal: _Array = np.ones(len(left), bool)
    for mine, theirs in matches:
        ours = rows.column(key_column(mine)).take(left)
        keys = stored.column(theirs, key_column(theirs)).take(right)
        equal &= pc.fill_null(pc.equal(ours, keys), fill_value=False).to_numpy()
    return equal


def _assemble(
    rows: pa.Table, stored: StoredRows, hop: Hop, left: _Array, right: _Array
) -> pa.Table:
    target = hop.target.relations
    sources = hop.order.join.relations - target
    mine = [at for at in hop.keys if at.relation in sources]
    theirs = [at for at in hop.keys if at.relation in target]
    ours = rows.select([LAST_NUMBER, LAST_STREAM, *members_of(sources), *key_columns(mine)]).take(
        left
    )
    columns = dict(zip(ours.column_names, ours.columns, strict=True))
    for name in members_of(target):
        columns[name] = stored.table.column(name).take(right)
    for at in theirs:
        for name in key_columns([at]):
            columns[name] = stored.column(at, name).take(right)
    return pa.table(columns)
