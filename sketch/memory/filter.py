"""A filter that keys can leave: counts of each bit, and the bits themselves."""

from __future__ import annotations

from array import array

from sketch.filter.bloom import FilterShape
from sketch.filter.hashing import positions

__all__ = ["MemoryFilter"]


class MemoryFilter:
    """The keys in the filter of one partition.

    Attributes:
        bits: The plain filter, always up to date.
        generation: Counts the changes of the bits.
    """

    def __init__(self, shape: FilterShape) -> None:
        self._shape = shape
        self._members: set[str] = set()
        self._counts = array("I", bytes(4 * shape.bits))
        self.bits = bytearray(shape.bits // 8)
        self.generation = 1

    def __len__(self) -> int:
        return len(self._members)

    @property
    def bits_set(self) -> int:
        """How many bits are set."""
        return int.from_bytes(self.bits).bit_count()

    def __contains__(self, key: str) -> bool:
        return key in self._members

    def add(self, key: str) -> None:
        """Let a key enter; once, however often it is told."""
        if key in self._members:
            return
        self._members.add(key)
        for place in positions(key, self._shape):
            self._counts[place] += 1
            if self._counts[place] == 1:
                self._flip(place)

    def discard(self, key: str) -> None:
        """Let a key leave, if it is there."""
        if key not in self._members:
            return
        self._members.remove(key)
        for place in positions(key, self._shape):
            self._counts[place] -= 1
            if self._counts[place] == 0:
                self._flip(place)

    def _flip(self, place: int) -> None:
        self.bits[place >> 3] ^= 0x80 >> (place & 7)
        self.generation += 1
