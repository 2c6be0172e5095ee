"""The counting Bloom filter of the server's sketch in memory: keys can leave it."""

from __future__ import annotations

from array import array

from sketch.filter.hashing import positions
from sketch.filter.shape import FilterShape

__all__ = ["CountingFilter"]


class CountingFilter:
    """Counts the keys of each bit, and keeps the plain bits as well.

    It remembers its keys, so that each enters once and only a present key leaves: counts are exact,
    and no key removes another.

    Attributes:
        bits: The plain filter, always up to date.
    """

    def __init__(self, shape: FilterShape) -> None:
        self._shape = shape
        self.keys: set[str] = set()
        self.counts = array("I", bytes(4 * shape.bits))
        self.bits = bytearray(shape.size)
        self.revision = 1

    def __len__(self) -> int:
        return len(self.keys)

    def __contains__(self, key: str) -> bool:
        return key in self.keys

    @property
    def bits_set(self) -> int:
        return int.from_bytes(self.bits).bit_count()

    def add(self, key: str) -> None:
        if key in self.keys:
            return
        self.keys.add(key)
        # Two of a key's positions can be equal; they count as two, here and in `discard`.
        for position in positions(key, self._shape):
            self.counts[position] += 1
            if self.counts[position] == 1:
                self._flip(position)

    def discard(self, key: str) -> None:
        if key not in self.keys:
            return
        self.keys.remove(key)
        for position in positions(key, self._shape):
            self.counts[position] -= 1
            if self.counts[position] == 0:
                self._flip(position)

    def _flip(self, position: int) -> None:
        self.bits[position >> 3] ^= 0x80 >> (position & 7)
        self.revision += 1
