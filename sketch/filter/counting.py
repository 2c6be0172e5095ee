"""A Bloom filter that keys can leave."""

from __future__ import annotations

from typing import Final

from sketch.filter.bloom import BloomFilter
from sketch.filter.hashing import Key, positions
from sketch.filter.membership import Membership
from sketch.filter.shape import FilterShape

__all__ = ["CountingFilter", "NeverAdded"]

_SATURATED: Final = 0xFF


class NeverAdded(ValueError):
    """The key is not in the filter, so it cannot leave; nothing has been changed."""


class CountingFilter(Membership):
    """Counts the keys of each bit, and keeps the plain bits beside.

    A key that is added twice has to be removed twice. A count of 255 is saturated: it is no longer
    known, and never goes down again. Removing a key that is found, but was never added, takes
    another key out; who removes has to know what was added.

    Args:
        shape: Size, number of bits of a key, seed.

    Attributes:
        generation: Counts the changes of the bits.
    """

    __slots__ = ("generation",)

    def __init__(self, shape: FilterShape) -> None:
        super().__init__(shape)
        self.generation = 0

    def add(self, key: Key) -> None:
        """Let a key enter."""
        cells = self._cells
        for place in set(positions(key, self.shape)):
            count = cells[place]
            if count < _SATURATED:
                cells[place] = count + 1
            if not count:
                self._flip(place)

    def remove(self, key: Key) -> None:
        """Let a key leave.

        Raises:
            NeverAdded: One of its bits is not set.
        """
        cells = self._cells
        # Two of a key's bits may fall together; they count as one, here and in `add`.
        places = set(positions(key, self.shape))
        if not all(cells[place] for place in places):
            raise NeverAdded("the key is not in the filter")
        for place in places:
            count = cells[place]
            if count < _SATURATED:
                cells[place] = count - 1
            if count == 1:
                self._flip(place)

    def plain(self) -> BloomFilter:
        """Return the plain filter as it stands."""
        return BloomFilter.from_bits(self.shape, self._bits)

    def _flip(self, place: int) -> None:
        self._bits[place >> 3] ^= 0x80 >> (place & 7)
        self.generation += 1
