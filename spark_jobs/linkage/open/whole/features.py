"""The features of a record's text: its words, neighbouring words joined, and n-grams of words.

With joined words, ``ps lx350h`` matches ``pslx350h``, another form of the same model number;
n-grams match spelling variants and inflections. A feature is a hash; a record has each one once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_jobs.linkage.compiled import compiled
from spark_jobs.linkage.open.strings import Floats, Rows, Text

__all__ = ["Features"]

_BLANK: Final = 32
_GRAM: Final = 3
_MAX_CHARACTERS: Final = 2_048


@dataclass(frozen=True, slots=True)
class Features:
    """Features of all records, numbered from the rarest to the most frequent.

    The numbers of record k are ``numbers[starts[k]:starts[k + 1]]``, ascending, so rare ones first;
    ``counts`` has the number of records with each feature.
    """

    numbers: NDArray[np.int64]
    starts: Rows
    counts: Rows

    @classmethod
    def of(cls, texts: pa.Array | pa.ChunkedArray) -> Features:
        """Read normalised texts with words separated by single blanks; null has no features."""
        text = Text.of(texts)
        hashes, starts = _features(text.points, text.starts)
        _, numbers, counts = np.unique(hashes, return_inverse=True, return_counts=True)
        by_rarity = np.argsort(counts, kind="stable")
        rank = np.empty_like(by_rarity)
        rank[by_rarity] = np.arange(len(by_rarity))
        ranked = rank[numbers]
        _sort_rows(ranked, starts)
        return cls(ranked, starts, counts[by_rarity])

    @property
    def records(self) -> int:
        return len(self.starts) - 1

    def weights(self) -> Floats:
        """Return the inverse document frequency of every feature, in nats; above 0."""
        weights: Floats = np.log((1.0 + self.records) / self.counts)
        return weights


@compiled
def _features(points: Any, starts: Any) -> Any:
    """Return distinct hashes of each row's features, and the start of each row."""
    # A row of n characters has at most n / 2 words, as many joined ones, and n n-grams.
    hashes = np.empty(2 * len(points) + 2 * len(starts), np.uint64)
    begins = np.empty(len(starts), np.int64)
    end = 0
    for row in range(len(starts) - 1):
        begins[row] = end
        first, last = starts[row], min(starts[row + 1], starts[row] + _MAX_CHARACTERS)
        before, at = -1, first
        while at < last:
            stop = at
            while stop < last and points[stop] != _BLANK:
                stop += 1
            hashes[end] = _hash(points, at, stop, np.uint64(14695981039346656037))
            end += 1
            if before >= 0:
                hashes[end] = _hash(points, before, stop, np.uint64(14695981039346656037))
                end += 1
            end = _grams(points, at, stop, hashes, end)
            before, at = at, stop + 1
        end = _distinct(hashes, begins[row], end)
    begins[-1] = end
    return hashes[:end].copy(), begins


@compiled
def _hash(points: Any, at: int, stop: int, value: Any) -> Any:
    """Hash characters, without blanks, by FNV-1a."""
    for k in range(at, stop):
        if points[k] != _BLANK:
            value = (value ^ np.uint64(points[k])) * np.uint64(1099511628211)
    return value


@compiled
def _grams(points: Any, at: int, stop: int, hashes: Any, end: int) -> int:
    """Write the n-grams of a word; the salt of the first and last one marks the word's ends."""
    for k in range(at, max(at + 1, stop - _GRAM + 1)):
        is_first, is_last = k == at, k + _GRAM >= stop
        salt = np.uint64(2 * is_first + is_last + 1)
        hashes[end] = _hash(points, k, min(stop, k + _GRAM), salt)
        end += 1
    return end


@compiled
def _distinct(hashes: Any, first: int, end: int) -> int:
    """Sort a run and keep each value once; return its end."""
    if end == first:
        return end
    run = np.sort(hashes[first:end])
    out = first
    for k in range(len(run)):
        if k == 0 or run[k] != run[k - 1]:
            hashes[out] = run[k]
            out += 1
    return out


@compiled
def _sort_rows(values: Any, starts: Any) -> None:
    for row in range(len(starts) - 1):
        values[starts[row] : starts[row + 1]] = np.sort(values[starts[row] : starts[row + 1]])
