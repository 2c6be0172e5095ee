"""String similarity: compiled kernels over pairs of rows of two columns of code points.

A column is stored flat, as `Text`: one array of code points, and the start of each row. A kernel
takes two columns and the rows to compare, and returns one number for each pair. Null counts as an
empty string.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_jobs.linkage.compiled import compiled

__all__ = [
    "Floats",
    "Rows",
    "Text",
    "equal",
    "jaccard",
    "jaro_winkler",
    "join_fields",
    "levenshtein",
]

_BLANK: Final = 32

Rows: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
TextColumn: TypeAlias = pa.Array | pa.ChunkedArray


@dataclass(frozen=True, slots=True)
class Text:
    """A column of strings: code points of all rows, each row's start, whether it has a value."""

    points: NDArray[np.uint32]
    starts: Rows
    valid: NDArray[np.bool_]

    @classmethod
    def of(cls, column: TextColumn) -> Text:
        text = column.cast(pa.large_string())
        if isinstance(text, pa.ChunkedArray):
            text = text.combine_chunks()
        valid = text.is_valid().to_numpy(zero_copy_only=False)
        text = text.fill_null("")
        starts = np.zeros(len(text) + 1, np.int64)
        np.cumsum(pc.utf8_length(text).to_numpy(), out=starts[1:])
        return cls(np.frombuffer(_concatenate(text).encode("utf-32-le"), np.uint32), starts, valid)

    def tokens(self) -> tuple[NDArray[np.uint64], Rows]:
        """Return hashes of each row's words, sorted and distinct, and the start of each row."""
        hashes: NDArray[np.uint64]
        hashes, starts = _tokens(self.points, self.starts)
        return hashes, starts


def join_fields(texts: Sequence[TextColumn]) -> TextColumn:
    """Join several texts of a record; null: it has none of them."""
    if len(texts) == 1:
        return texts[0]
    joined = pc.binary_join_element_wise(*(text.fill_null("") for text in texts), " ")
    text = pc.replace_substring_regex(pc.utf8_trim(joined, " "), " +", " ")
    return pc.if_else(pc.equal(text, ""), None, text)


def _concatenate(text: pa.LargeStringArray) -> str:
    """Concatenate all rows."""
    _, ends, data = text.buffers()
    if not len(text) or data is None:
        return ""
    at = np.frombuffer(ends, np.int64)
    # A slice shares its parent's buffers; its data lies between its offsets.
    begin, end = at[text.offset], at[text.offset + len(text)]
    return bytes(memoryview(data)[begin:end]).decode()


def equal(left: Text, right: Text, i: Rows, j: Rows) -> Floats:
    """Return 1 for equal strings, else 0."""
    return _over_pairs(_equal, left, right, i, j)


def levenshtein(left: Text, right: Text, i: Rows, j: Rows) -> Floats:
    """Return the restricted Damerau-Levenshtein distance: edits and swaps of neighbours."""
    return _over_pairs(_levenshtein, left, right, i, j)


def jaro_winkler(left: Text, right: Text, i: Rows, j: Rows) -> Floats:
    """Return Jaro-Winkler similarity (prefix weight 0.1, four characters), in [0, 1]."""
    return _over_pairs(_jaro_winkler, left, right, i, j)


def jaccard(left: Text, right: Text, i: Rows, j: Rows) -> Floats:
    """Return shared words over words in either, in [0, 1]; 0 if neither has words."""
    out = np.empty(len(i), np.float64)
    _jaccard(*left.tokens(), *right.tokens(), i, j, out)
    return out


def _over_pairs(kernel: Any, left: Text, right: Text, i: Rows, j: Rows) -> Floats:
    out = np.empty(len(i), np.float64)
    kernel(left.points, left.starts, right.points, right.starts, i, j, out)
    return out


@compiled
def _equal(a: Any, a_at: Any, b: Any, b_at: Any, i: Any, j: Any, out: Any) -> None:
    for k in range(len(i)):
        x, y = a_at[i[k]], b_at[j[k]]
        length = a_at[i[k] + 1] - x
        same = length == b_at[j[k] + 1] - y
        for at in range(length if same else 0):
            if a[x + at] != b[y + at]:
                same = False
                break
        out[k] = 1.0 if same else 0.0


@compiled
def _levenshtein(a: Any, a_at: Any, b: Any, b_at: Any, i: Any, j: Any, out: Any) -> None:
    max_length = 0
    for k in range(len(j)):
        max_length = max(max_length, b_at[j[k] + 1] - b_at[j[k]])
    before = np.empty(max_length + 1, np.int64)
    above, row = np.empty_like(before), np.empty_like(before)
    for k in range(len(i)):
        s, t = a[a_at[i[k]] : a_at[i[k] + 1]], b[b_at[j[k]] : b_at[j[k] + 1]]
        for y in range(len(t) + 1):
            above[y] = y
        for x in range(1, len(s) + 1):
            row[0] = x
            for y in range(1, len(t) + 1):
                cost = 0 if s[x - 1] == t[y - 1] else 1
                best = min(min(above[y], row[y - 1]) + 1, above[y - 1] + cost)
                # A swap of neighbours continues two rows up and two columns to the left.
                if x > 1 and y > 1 and s[x - 1] == t[y - 2] and s[x - 2] == t[y - 1]:
                    best = min(best, before[y - 2] + 1)
                row[y] = best
            before, above, row = above, row, before
        out[k] = above[len(t)]


@compiled
def _jaro_winkler(a: Any, a_at: Any, b: Any, b_at: Any, i: Any, j: Any, out: Any) -> None:
    max_length = 0
    for k in range(len(i)):
        max_length = max(max_length, a_at[i[k] + 1] - a_at[i[k]], b_at[j[k] + 1] - b_at[j[k]])
    matched = np.zeros(max_length, np.bool_)
    common = np.empty(max_length, np.uint32)
    for k in range(len(i)):
        s, t = a[a_at[i[k]] : a_at[i[k] + 1]], b[b_at[j[k]] : b_at[j[k] + 1]]
        jaro = _jaro(s, t, matched, common)
        prefix = 0
        while prefix < min(4, len(s), len(t)) and s[prefix] == t[prefix]:
            prefix += 1
        out[k] = jaro + 0.1 * prefix * (1.0 - jaro)


@compiled
def _jaro(s: Any, t: Any, matched: Any, common: Any) -> float:
    # Jaro's window: characters further apart do not match.
    reach = max(0, max(len(s), len(t)) // 2 - 1)
    matched[: len(t)] = False
    matches = 0
    for x in range(len(s)):
        for y in range(max(0, x - reach), min(len(t), x + reach + 1)):
            if not matched[y] and s[x] == t[y]:
                matched[y] = True
                common[matches] = s[x]
                matches += 1
                break
    if not matches:
        return 0.0
    out_of_order, at = 0, 0
    for y in range(len(t)):
        if matched[y]:
            out_of_order += common[at] != t[y]
            at += 1
    # A transposition is two matches out of order.
    return float(
        (matches / len(s) + matches / len(t) + (matches - out_of_order // 2) / matches) / 3
    )


@compiled
def _tokens(points: Any, starts: Any) -> Any:
    hashes = np.empty(len(points), np.uint64)
    begins = np.empty(len(starts), np.int64)
    end = 0
    for row in range(len(starts) - 1):
        begins[row] = end
        first, inside, value = end, False, np.uint64(0)
        for at in range(starts[row], starts[row + 1] + 1):
            if at < starts[row + 1] and points[at] != _BLANK:
                if not inside:
                    value = np.uint64(14695981039346656037)  # FNV-1a
                value = (value ^ np.uint64(points[at])) * np.uint64(1099511628211)
                inside = True
            elif inside:
                end += _insert(hashes, first, end, value)
                inside = False
    begins[-1] = end
    return hashes[:end], begins


@compiled
def _insert(values: Any, first: int, end: int, value: Any) -> int:
    """Insert a value into a sorted run unless present; return the run's growth, 0 or 1."""
    at = end
    while at > first and values[at - 1] > value:
        at -= 1
    if at > first and values[at - 1] == value:
        return 0
    for k in range(end, at, -1):
        values[k] = values[k - 1]
    values[at] = value
    return 1


@compiled
def _jaccard(a: Any, a_at: Any, b: Any, b_at: Any, i: Any, j: Any, out: Any) -> None:
    for k in range(len(i)):
        x, x_end = a_at[i[k]], a_at[i[k] + 1]
        y, y_end = b_at[j[k]], b_at[j[k] + 1]
        either = (x_end - x) + (y_end - y)
        both = 0
        while x < x_end and y < y_end:
            both += a[x] == b[y]
            step, step_y = a[x] <= b[y], b[y] <= a[x]
            x += step
            y += step_y
        out[k] = both / (either - both) if either else 0.0
