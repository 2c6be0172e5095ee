"""The Bloom filter of clients and of the simulator: keys enter it, but do not leave."""

from __future__ import annotations

from math import inf, log
from typing import Any, Final

import mmh3
import numpy as np
from numpy.typing import NDArray

from sketch.filter.hashing import (
    STRIDE,
    WORD,
    Key,
    Keys,
    as_words,
    hash_all,
    position_rounds,
    positions,
    positions_of,
)
from sketch.filter.shape import FilterShape

__all__ = ["BloomFilter"]

_BATCH: Final = 16_384
"""Hashes in one step: their intermediate results stay in the second-level cache."""


class BloomFilter:
    """A set of keys with false positives, but no false negatives.

    In addition to the bits it keeps a byte for each bit: testing a bit takes a single look-up, at
    the price of eight times the memory.
    """

    __slots__ = ("_bits", "_cells", "_later_rounds", "_seed", "_size", "shape")

    def __init__(self, shape: FilterShape) -> None:
        self.shape = shape
        self._bits = bytearray(shape.size)
        self._cells = bytearray(shape.bits)
        self._size = shape.bits
        self._seed = shape.seed
        self._later_rounds = range(1, shape.hashes)

    @classmethod
    def from_bits(cls, shape: FilterShape, bits: bytes | bytearray | memoryview) -> BloomFilter:
        """Return a filter of bits, most significant first; `ValueError` for a wrong length."""
        if memoryview(bits).nbytes != shape.size:
            raise ValueError("the number of bits does not match the shape")
        filter_ = cls(shape)
        filter_._bits[:] = memoryview(bits).cast("B")
        filter_._view()[:] = np.unpackbits(np.frombuffer(filter_._bits, np.uint8))
        return filter_

    @property
    def bits(self) -> memoryview:
        """The bit array, most significant bit first; a view that changes with the filter."""
        return memoryview(self._bits).toreadonly()

    def add(self, key: Key) -> None:
        for position in positions(key, self.shape):
            self._cells[position] = 1
            # Most significant bit first, as on the wire (docs/sketch-wire.md).
            self._bits[position >> 3] |= 0x80 >> (position & 7)

    def add_many(self, keys: Keys) -> None:
        indices = positions_of(hash_all(keys, self._seed), self.shape).reshape(-1)
        masks = np.right_shift(np.uint8(0x80), (indices & 7).astype(np.uint8))
        np.bitwise_or.at(np.frombuffer(self._bits, np.uint8), indices >> 3, masks)
        self._view()[indices] = 1

    def contains(self, key: Key) -> bool:
        """Whether a key may be in the filter; False is certain."""
        # This inlines `hashing.positions`, so that it can stop at the first clear bit.
        data = key.encode() if isinstance(key, str) else key
        words = mmh3.mmh3_x86_128_uintdigest(data, self._seed)
        at = words & WORD
        cells, size = self._cells, self._size
        if not cells[at * size >> 32]:
            return False
        stride = (words >> 33) & 0x7FFF_FFFF | STRIDE
        for _ in self._later_rounds:
            at = at + stride & WORD
            if not cells[at * size >> 32]:
                return False
        return True

    __contains__ = contains

    def contains_many(self, keys: Keys) -> NDArray[np.bool_]:
        return self.contains_hashes(hash_all(keys, self._seed))

    def contains_hashes(self, hashes: NDArray[Any]) -> NDArray[np.bool_]:
        """Test many keys by their hashes, 16 bytes in each row, computed with the filter's seed.

        Raises:
            ValueError: The rows are not hashes.
        """
        words = as_words(hashes)
        results = np.empty(len(words), np.bool_)
        for first in range(0, len(words), _BATCH):
            chunk = slice(first, first + _BATCH)
            results[chunk] = self._min_cells(words[chunk])
        return results

    @property
    def fill_ratio(self) -> float:
        return int.from_bytes(self._bits).bit_count() / self._size

    @property
    def false_positive_rate(self) -> float:
        """The share of keys never added that are found, given the current bits."""
        return float(self.fill_ratio**self.shape.hashes)

    @property
    def estimated_count(self) -> float:
        """An estimate of how many different keys were added; infinite if all bits are set."""
        fill = self.fill_ratio
        return inf if fill == 1 else -self._size / self.shape.hashes * log(1 - fill)

    def _view(self) -> NDArray[np.uint8]:
        return np.frombuffer(self._cells, np.uint8)

    def _min_cells(self, words: NDArray[np.uint32]) -> NDArray[np.uint8]:
        """Return the minimum cell of each key: 0 unless all of its bits are set."""
        cells = self._view()
        rounds = position_rounds(words, self.shape)
        # No position lies outside, so clipping changes nothing; it saves the check.
        minimum = np.take(cells, next(rounds), mode="clip")
        for indices in rounds:
            np.minimum(minimum, np.take(cells, indices, mode="clip"), out=minimum)
        return minimum
