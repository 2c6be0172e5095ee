"""Encodings as numpy arrays: their bits in the common order, in words of 64.

See docs/papers/pprl.md, 2.3.

The order follows all owners' frequencies: rare positions first, ties by position, unused positions
last. Unused positions are kept, because a later record can use them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from spark_jobs.linkage.compiled import compiled

__all__ = ["GROUP", "BitOrder", "Numbers", "Words", "cardinalities", "frequencies", "unpacked"]

GROUP: Final = 4
"""Words that a kernel compares in one step; a record's number of words is a multiple."""

_WORD_BITS: Final = 64

Bytes: TypeAlias = NDArray[np.uint8]
Words: TypeAlias = NDArray[np.uint64]
Numbers: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class BitOrder:
    """The order in which all records of a run are rewritten, by the frequency of each position."""

    frequency: Numbers
    records: int

    @cached_property
    def positions(self) -> Numbers:
        """The position of each rank."""
        unused = self.frequency == 0
        return np.lexsort((np.arange(len(self.frequency)), self.frequency, unused))

    @cached_property
    def words(self) -> int:
        return -(-len(self.frequency) // (_WORD_BITS * GROUP)) * GROUP

    @cached_property
    def by_selectivity(self) -> Numbers:
        """The order in which a kernel compares words: the most selective first.

        At a position that a share p of records has set, two records differ with probability ``2 p
        (1 - p)``; after the first few words most pairs have thus differed too often.
        """
        variances = np.zeros(self.words * _WORD_BITS)
        ordered = self.frequency[self.positions].astype(np.float64)
        variances[: len(ordered)] = ordered * (self.records - ordered)
        return np.argsort(-variances.reshape(self.words, _WORD_BITS).sum(axis=1), kind="stable")

    def rewritten(self, arrays: Bytes) -> Words:
        """Rewrite arrays of bytes in this order; rank 0 is the highest bit of the first word."""
        ranks = np.empty(len(self.frequency), dtype=np.int64)
        ranks[self.positions] = np.arange(len(ranks))
        words = np.zeros((len(arrays), self.words), dtype=np.uint64)
        _rewrite(arrays, ranks, words)
        return words


@compiled
def _rewrite(arrays: Any, ranks: Any, words: Any) -> None:
    for i in range(len(arrays)):
        for byte in range(arrays.shape[1]):
            bits = arrays[i, byte]
            for bit in range(8):
                if bits & (0x80 >> bit):
                    rank = ranks[byte * 8 + bit]
                    words[i, rank >> 6] |= np.uint64(1) << np.uint64(63 - (rank & 63))


@compiled
def _count(arrays: Any, total: Any) -> None:
    for i in range(len(arrays)):
        for byte in range(arrays.shape[1]):
            bits = arrays[i, byte]
            for bit in range(8):
                total[byte * 8 + bit] += (bits >> (7 - bit)) & 1


def unpacked(binaries: list[bytes]) -> Bytes:
    """Stack encodings of equal length: records x bytes."""
    return np.frombuffer(b"".join(binaries), dtype=np.uint8).reshape(len(binaries), -1)


def frequencies(arrays: Bytes) -> Numbers:
    total = np.zeros(arrays.shape[1] * 8, dtype=np.int64)
    _count(arrays, total)
    return total


def cardinalities(words: Words) -> Numbers:
    sizes: Numbers = np.bitwise_count(words).sum(axis=1, dtype=np.int64)
    return sizes
