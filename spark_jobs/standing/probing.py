"""The kernel of a hop: rows meet those that are stored, by a sorted index of hashes.

Hashes find candidates, in blocks, so that memory is bounded whatever the skew is. The window, the
order of arrival and the keys themselves decide.
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
"""Candidate pairs that are compared at once."""

_Array: TypeAlias = np.ndarray[Any, Any]


def probe(rows: pa.Table, stored: StoredRows, hop: Hop) -> Iterator[pa.Table]:
    """Join rows with stored ones; those that arrived in this batch have to be earlier."""
    mine, theirs = hop.matches[0]
    codes = column_of(rows, code_column(mine))
    comparable = np.flatnonzero(rows.column(key_column(mine)).is_valid().to_numpy())
    index = stored.index(theirs)
    begin = np.searchsorted(index.codes, codes[comparable], "left")
    counts = np.searchsorted(index.codes, codes[comparable], "right") - begin
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    for first in range(0, total, _BLOCK):
        pairs = np.arange(first, min(first + _BLOCK, total))
        number = np.searchsorted(ends, pairs, "right")
        offset = pairs - (ends[number] - counts[number])
        left, right = comparable[number], index.rows[begin[number] + offset]
        found = _joined(rows, stored, hop, left, right)
        if len(found):
            yield found


def _joined(rows: pa.Table, stored: StoredRows, hop: Hop, left: _Array, right: _Array) -> pa.Table:
    """Return the pairs that belong together, as one row each."""
    first_s = np.minimum(column_of(rows, FIRST_S)[left], stored.first_s[right])
    last_s = np.maximum(column_of(rows, LAST_S)[left], stored.last_s[right])
    good = last_s - first_s <= hop.order.join.window_s
    if stored.is_new:
        good &= _is_earlier(stored.table, right, rows, left)
    for mine, theirs in hop.matches[1:]:
        codes = stored.column(theirs, code_column(theirs))
        good &= column_of(rows, code_column(mine))[left] == codes.to_numpy()[right]
    left, right, first_s, last_s = (each[good] for each in (left, right, first_s, last_s))
    equal = _have_equal_keys(rows, stored, hop.matches, left, right)
    if not equal.all():
        left, right, first_s, last_s = (each[equal] for each in (left, right, first_s, last_s))
    return (
        _assembled(rows, stored, hop, left, right)
        .append_column(FIRST_S, pa.array(first_s))
        .append_column(LAST_S, pa.array(last_s))
    )


def _is_earlier(one: pa.Table, at: _Array, other: pa.Table, other_at: _Array) -> _Array:
    """Compare by feed position, and by stream among those of one position."""
    number, stream = column_of(one, LAST_NUMBER)[at], column_of(one, LAST_STREAM)[at]
    than, than_stream = (column_of(other, each)[other_at] for each in (LAST_NUMBER, LAST_STREAM))
    earlier: _Array = (number < than) | ((number == than) & (stream < than_stream))
    return earlier


def _have_equal_keys(
    rows: pa.Table,
    stored: StoredRows,
    matches: Sequence[tuple[Attribute, Attribute]],
    left: _Array,
    right: _Array,
) -> _Array:
    """Compare keys, as different ones may have the same hash, and null equals nothing."""
    equal: _Array = np.ones(len(left), bool)
    for mine, theirs in matches:
        ours = rows.column(key_column(mine)).take(left)
        keys = stored.column(theirs, key_column(theirs)).take(right)
        equal &= pc.fill_null(pc.equal(ours, keys), fill_value=False).to_numpy()
    return equal


def _assembled(
    rows: pa.Table, stored: StoredRows, hop: Hop, left: _Array, right: _Array
) -> pa.Table:
    target = hop.target.relations
    known = hop.order.join.relations - target
    mine = [at for at in hop.keys if at.relation in known]
    theirs = [at for at in hop.keys if at.relation in target]
    ours = rows.select([LAST_NUMBER, LAST_STREAM, *members_of(known), *key_columns(mine)]).take(
        left
    )
    columns = dict(zip(ours.column_names, ours.columns, strict=True))
    for name in members_of(target):
        columns[name] = stored.table.column(name).take(right)
    for at in theirs:
        for name in key_columns([at]):
            columns[name] = stored.column(at, name).take(right)
    return pa.table(columns)
