"""The plain Bloom filter; keys enter it, but do not leave."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketch.filter.hashing import Key, Keys, hash_all, positions, positions_of
from sketch.filter.membership import Membership
from sketch.filter.shape import FilterShape

__all__ = ["BloomFilter", "FilterShape", "ShapesDiffer"]


class ShapesDiffer(ValueError):
    """Filters of different shapes cannot be united: their bits mean different things."""


class BloomFilter(Membership):
    """A set of keys that may say yes wrongly, but never no.

    Args:
        shape: Size, number of bits of a key, seed.
    """

    __slots__ = ()

    @classmethod
    def from_bits(cls, shape: FilterShape, bits: bytes | bytearray | memoryview) -> BloomFilter:
        """Return a filter of bits, most significant bit first.

        Raises:
            ValueError: They are not as many as the shape says.
        """
        if memoryview(bits).nbytes != shape.size:
            raise ValueError("the bits are not as many as the shape says")
        made = cls(shape)
        made._bits[:] = memoryview(bits).cast("B")
        made._view()[:] = np.unpackbits(np.frombuffer(made._bits, np.uint8))
        return made

    def add(self, key: Key) -> None:
        """Let a key enter."""
        for place in positions(key, self.shape):
            self._cells[place] = 1
            self._bits[place >> 3] |= 0x80 >> (place & 7)

    def add_many(self, keys: Keys) -> None:
        """Let many keys enter."""
        self.add_hashes(hash_all(keys, self.shape.seed))

    def add_hashes(self, hashes: NDArray[Any]) -> None:
        """Let many keys enter by their hashes, 16 bytes in each row, of the filter's seed.

        Raises:
            ValueError: The rows are no hashes.
        """
        places = positions_of(hashes, self.shape).reshape(-1)
        masks = np.right_shift(np.uint8(0x80), (places & 7).astype(np.uint8))
        np.bitwise_or.at(np.frombuffer(self._bits, np.uint8), places >> 3, masks)
        self._view()[places] = 1

    def union(self, other: BloomFilter) -> BloomFilter:
        """Return a filter of the keys of both.

        Raises:
            ShapesDiffer: They are of different shapes.
        """
        if self.shape != other.shape:
            raise ShapesDiffer(f"{self.shape} and {other.shape} cannot be united")
        mine, others = (np.frombuffer(one.bits, np.uint8) for one in (self, other))
        return BloomFilter.from_bits(self.shape, (mine | others).tobytes())
