"""Asking a filter for keys, one by one and many at once."""

from __future__ import annotations

from math import inf, log
from typing import Any, Final

import mmh3
import numpy as np
from numpy.typing import NDArray

from sketch.filter.hashing import STRIDE, WORD, Key, Keys, as_words, hash_all, place_rounds
from sketch.filter.shape import FilterShape

__all__ = ["Membership"]

_AT_ONCE: Final = 16_384
"""Hashes in one step: what is computed of them stays in the second-level cache."""


class Membership:
    """The bits of a filter in two forms that always agree.

    Beside the plain bits it keeps one byte for each (nothing, or a count): testing it takes a
    single look-up, at the price of eight times the memory.

    Attributes:
        shape: Size, number of bits of a key, seed.
    """

    __slots__ = ("_bits", "_cells", "_further", "_seed", "_size", "shape")

    def __init__(self, shape: FilterShape) -> None:
        self.shape = shape
        self._bits = bytearray(shape.size)
        self._cells = bytearray(shape.bits)
        self._size = shape.bits
        self._seed = shape.seed
        self._further = range(1, shape.hashes)

    @property
    def bits(self) -> memoryview:
        """The plain bit array as it stands, most significant bit first; not to be written."""
        return memoryview(self._bits).toreadonly()

    def contains(self, key: Key) -> bool:
        """Whether a key may be in the filter; False is certain."""
        # This is `hashing.positions`, written out so that it may stop at the first clear bit.
        data = key.encode() if isinstance(key, str) else key
        words = mmh3.mmh3_x86_128_uintdigest(data, self._seed)
        at = words & WORD
        cells, size = self._cells, self._size
        if not cells[at * size >> 32]:
            return False
        stride = (words >> 33) & 0x7FFF_FFFF | STRIDE
        for _ in self._further:
            at = at + stride & WORD
            if not cells[at * size >> 32]:
                return False
        return True

    __contains__ = contains

    def contains_many(self, keys: Keys) -> NDArray[np.bool_]:
        """Ask for many keys; the answers are in their order."""
        return self.contains_hashes(hash_all(keys, self._seed))

    def contains_hashes(self, hashes: NDArray[Any]) -> NDArray[np.bool_]:
        """Ask for many keys by their hashes, 16 bytes in each row, of the filter's seed.

        Raises:
            ValueError: The rows are no hashes.
        """
        words = as_words(hashes)
        found = np.empty(len(words), np.bool_)
        for first in range(0, len(words), _AT_ONCE):
            chunk = slice(first, first + _AT_ONCE)
            found[chunk] = self._least(words[chunk])
        return found

    @property
    def fill_ratio(self) -> float:
        """The share of the bits that are set."""
        return int(np.count_nonzero(self._view())) / self._size

    @property
    def false_positive_rate(self) -> float:
        """The share of keys that were never added, but are found, as the bits stand."""
        return float(self.fill_ratio**self.shape.hashes)

    @property
    def estimated_count(self) -> float:
        """How many different keys were added, about; infinite if all bits are set."""
        fill = self.fill_ratio
        if fill == 1:
            return inf
        return -self._size / self.shape.hashes * log(1 - fill)

    def _view(self) -> NDArray[np.uint8]:
        return np.frombuffer(self._cells, np.uint8)

    def _least(self, words: NDArray[np.uint32]) -> NDArray[np.uint8]:
        """Return the least cell of each key: nothing, unless all of its bits are set."""
        cells = self._view()
        rounds = place_rounds(words, self.shape)
        # No place lies outside, so that clipping changes nothing; it spares the check.
        least = np.take(cells, next(rounds), mode="clip")
        for places in rounds:
            np.minimum(least, np.take(cells, places, mode="clip"), out=least)
        return least
