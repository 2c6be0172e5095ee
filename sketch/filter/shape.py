"""What filters must share to be united."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["FilterShape"]

_FEWEST_BITS: Final = 8
_MOST_BITS: Final = 2**31
_MOST_HASHES: Final = 32
_SEEDS: Final = 2**32


@dataclass(frozen=True, slots=True)
class FilterShape:
    """What two filters must share to be united.

    Attributes:
        bits: Size of the bit array (m), 8 to 2³¹, a multiple of 8.
        hashes: Bits of a key (k), 1 to 32.
        seed: Of the hash function, below 2³².

    Raises:
        ValueError: One of them is out of bounds.
    """

    bits: int = 116_800
    hashes: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        if not _FEWEST_BITS <= self.bits <= _MOST_BITS or self.bits % 8:
            raise ValueError("a filter has 8 to 2^31 bits, a multiple of 8")
        if not 1 <= self.hashes <= _MOST_HASHES:
            raise ValueError("a key has 1 to 32 bits")
        if not 0 <= self.seed < _SEEDS:
            raise ValueError("the seed is below 2^32")

    @property
    def size(self) -> int:
        """Size of the bit array in bytes."""
        return self.bits // 8
