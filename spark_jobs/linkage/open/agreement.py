"""Agreement of pairs of records: a level for each comparison, and one number for all levels.

A similarity is computed once for each pair and then mapped to a level; a level is measured only for
pairs that miss the levels above it. The levels of a pair form its *pattern*, a mixed-radix number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_jobs.linkage.open.spec import FieldComparison, Measure
from spark_jobs.linkage.open.strings import (
    Floats,
    Rows,
    Text,
    equal,
    jaccard,
    jaro_winkler,
    levenshtein,
)

__all__ = ["Columns", "Levels", "pattern_codes", "pattern_levels", "rarity", "vectors"]

Levels: TypeAlias = NDArray[np.int8]
"""Shape (pairs, comparisons): 0 is null, 1 the highest level, the last one *else*."""

_MEASURES: Final[Mapping[Measure, Callable[[Text, Text, Rows, Rows], Floats]]] = {
    Measure.EXACT: equal,
    Measure.LEVENSHTEIN: levenshtein,
    Measure.JARO_WINKLER: jaro_winkler,
    Measure.JACCARD: jaccard,
}


@dataclass(slots=True)
class Columns:
    """The compared columns of some records, converted from Arrow on first use.

    For comparison k the table has its text ``c<k>`` and, where needed, its number ``n<k>`` and the
    frequency of its value ``f<k>``.
    """

    table: pa.Table | pa.RecordBatch
    _texts: dict[int, Text] = field(default_factory=dict)

    def text(self, k: int) -> Text:
        if k not in self._texts:
            self._texts[k] = Text.of(self.table.column(f"c{k}"))
        return self._texts[k]

    def floats(self, name: str) -> Floats:
        """Return a column of numbers (NaN: missing) or of frequencies."""
        values: Floats = self.table.column(name).to_numpy(zero_copy_only=False)
        return values


def vectors(comparisons: Sequence[FieldComparison], columns: Columns, i: Rows, j: Rows) -> Levels:
    """Compare records i with records j; one row for each pair."""
    out = np.empty((len(i), len(comparisons)), np.int8)
    for k, comparison in enumerate(comparisons):
        out[:, k] = _levels(comparison, columns, k, i, j)
    return out


def _levels(comparison: FieldComparison, columns: Columns, k: int, i: Rows, j: Rows) -> Levels:
    text = columns.text(k)
    levels = np.zeros(len(i), np.int8)
    remaining = np.flatnonzero(text.valid[i] & text.valid[j])
    values_by_measure: dict[Measure, Floats] = {}
    for number, level in enumerate(comparison.levels, start=1):
        values = values_by_measure.get(level.measure)
        if values is None:
            values = _measure(level.measure, columns, k, i[remaining], j[remaining])
        met = values <= level.limit if level.measure.is_distance else values >= level.limit
        levels[remaining[met]] = number
        remaining = remaining[~met]
        values_by_measure = {
            name: previous[~met]
            for name, previous in (values_by_measure | {level.measure: values}).items()
        }
    levels[remaining] = len(comparison.levels) + 1
    return levels


def _measure(measure: Measure, columns: Columns, k: int, i: Rows, j: Rows) -> Floats:
    if measure.is_numeric:
        numbers = columns.floats(f"n{k}")
        return np.abs(numbers[i] - numbers[j])
    text = columns.text(k)
    return _MEASURES[measure](text, text, i, j)


def rarity(
    comparisons: Sequence[FieldComparison], columns: Columns, levels: Levels, i: Rows
) -> Floats:
    """Return the bits of exact agreement, summed over fields with term frequency.

    That is -log2 of the share of records with the value; the model subtracts the bits that it
    expects of the field.
    """
    bits = np.zeros(len(i))
    for k, comparison in enumerate(comparisons):
        if comparison.term_frequency:
            exact = np.flatnonzero(levels[:, k] == 1)
            bits[exact] -= np.log2(columns.floats(f"f{k}")[i[exact]])
    return bits


def pattern_codes(comparisons: Sequence[FieldComparison], levels: Levels) -> Rows:
    codes = np.zeros(len(levels), np.int64)
    for k, comparison in enumerate(comparisons):
        codes = codes * len(comparison.level_names) + levels[:, k]
    return codes


def pattern_levels(comparisons: Sequence[FieldComparison], codes: Rows) -> Levels:
    levels = np.empty((len(codes), len(comparisons)), np.int8)
    # From the last comparison back: it is the lowest digit.
    for k in range(len(comparisons) - 1, -1, -1):
        codes, levels[:, k] = np.divmod(codes, len(comparisons[k].level_names))
    return levels
