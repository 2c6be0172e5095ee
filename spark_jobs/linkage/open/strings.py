"""How alike strings are: compiled kernels over pairs of rows of two columns of code points.

A column is stored flat, as `Text`: one array of code points and where each row begins. A kernel
takes two columns and the rows to be compared, and returns one number for each pair. Null counts as
an empty string.
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
    "joined_fields",
    "levenshtein",
]

_BLANK: Final = 32

Rows: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
TextColumn: TypeAlias = pa.Array | pa.ChunkedArray


@dataclass(frozen=True, slots=True)
class Text:
    """A column of strings: code points of all rows, where each begins, whether it has a value."""

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
        return cls(np.frombuffer(_joined(text).encode("utf-32-le"), np.uint32), starts, valid)

    def tokens(self) -> tuple[NDArray[np.uint64], Rows]:
        """Hashes of the words of each row, sorted and distinct, and where each row begins."""
        hashes: NDArray[np.uint64]
        hashes, starts = _tokens(self.points, self.starts)
        return hashes, starts


def joined_fields(texts: Sequence[TextColumn]) -> TextColumn:
    """Several texts of a record as one; null: it has none of them."""
    if len(texts) == 1:
        return texts[0]
    whole = pc.binary_join_element_wise(*(text.fill_null("") for text in texts), " ")
    text = pc.replace_substring_regex(pc.utf8_trim(whole, " "), " +", " ")
    return pc.if_else(pc.equal(text, ""), None, text)


def _joined(text: pa.LargeStringArray) -> str:
    """All rows, concatenated."""
    _, ends, data = text.buffers()
    if not len(text) or data is None:
        return ""
    at = np.frombuffer(ends, np.int64)
    # A slice shares the buffers of the whole: only what is between its offsets is its own.
    begin, end = at[text.offset], at[text.offset + len(text)]
    return bytes(memoryview(data)[begin:end]).decode()


def equal(left: Text, right: Text, i: Rows, j: Rows) -> Floats:
    """1 where both are the same, else 0."""
    return _over_pairs(_equal, left, right, i, j)


def levenshtein(left: Text, right: Text, i: Rows, j: Rows) -> Floats:
    """The number of insertions, deletions, substitutions and swaps of neighbours (restricted)."""
    return _over_pairs(_levenshtein, left, right, i, j)


def jaro_winkler(left: Text, right: Text, i: Rows, j: Rows) -> Floats:
    """Jaro's similarity with Winkler's prefix bonus (weight 0.1, four characters), in [0, 1]."""
    return _over_pairs(_jaro_winkler, left, right, i, j)


def jaccard(left: Text, right: Text, i: Rows, j: Rows) -> Floats:
    """Words in common over words in either, in [0, 1]; 0 if neither has words."""
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
    longest = 0
    for k in range(len(j)):
        longest = max(longest, b_at[j[k] + 1] - b_at[j[k]])
    before = np.empty(longest + 1, np.int64)
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
    longest = 0
    for k in range(len(i)):
        longest = max(longest, a_at[i[k] + 1] - a_at[i[k]], b_at[j[k] + 1] - b_at[j[k]])
    taken = np.zeros(longest, np.bool_)
    common = np.empty(longest, np.uint32)
    for k in range(len(i)):
        s, t = a[a_at[i[k]] : a_at[i[k] + 1]], b[b_at[j[k]] : b_at[j[k] + 1]]
        jaro = _jaro(s, t, taken, common)
        prefix = 0
        while prefix < min(4, len(s), len(t)) and s[prefix] == t[prefix]:
            prefix += 1
        out[k] = jaro + 0.1 * prefix * (1.0 - jaro)


@compiled
def _jaro(s: Any, t: Any, taken: Any, common: Any) -> float:
    # Jaro's window: characters that are further apart do not match.
    reach = max(0, max(len(s), len(t)) // 2 - 1)
    taken[: len(t)] = False
    matches = 0
    for x in range(len(s)):
        for y in range(max(0, x - reach), min(len(t), x + reach + 1)):
            if not taken[y] and s[x] == t[y]:
                taken[y] = True
                common[matches] = s[x]
                matches += 1
                break
    if not matches:
        return 0.0
    moved, at = 0, 0
    for y in range(len(t)):
        if taken[y]:
            moved += common[at] != t[y]
            at += 1
    # A transposition is two matches out of order.
    return float((matches / len(s) + matches / len(t) + (matches - moved // 2) / matches) / 3)


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
    """Insert a value into a sorted run, unless it is there; return how much longer the run is."""
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
