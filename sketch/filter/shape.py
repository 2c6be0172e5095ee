"""The shape of a filter, and how many keys it is for (docs/papers/cache_sketch.md, "Sizes")."""

from __future__ import annotations

from dataclasses import dataclass
from math import expm1, floor, log
from typing import Final

__all__ = ["FilterShape", "capacity", "false_positive_rate"]

_MIN_BITS: Final = 8
_MAX_BITS: Final = 2**31
_MAX_HASHES: Final = 32
_SEEDS: Final = 2**32


@dataclass(frozen=True, slots=True)
class FilterShape:
    """The parameters that two filters must share to be united.

    Attributes:
        bits: Size of the bit array (m), 8 to 2³¹, a multiple of 8.
        hashes: Bits of a key (k), 1 to 32.
        seed: Seed of the hash function, below 2³².

    Raises:
        ValueError: One of them is out of bounds.
    """

    bits: int = 116_800
    hashes: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        if not _MIN_BITS <= self.bits <= _MAX_BITS or self.bits % 8:
            raise ValueError("a filter has 8 to 2^31 bits, a multiple of 8")
        if not 1 <= self.hashes <= _MAX_HASHES:
            raise ValueError("a key has 1 to 32 bits")
        if not 0 <= self.seed < _SEEDS:
            raise ValueError("the seed is below 2^32")

    @property
    def size(self) -> int:
        """Size of the bit array in bytes."""
        return self.bits // 8


def false_positive_rate(bits: int, hashes: float, keys: int) -> float:
    """Return the share of keys never added that are found: (1 - e^(-kn/m))^k."""
    return float((-expm1(-hashes * keys / bits)) ** hashes)


def capacity(bits: int, rate: float) -> int:
    """Return how many keys a filter may hold at a false positive rate, with the best k.

    Raises:
        ValueError: The rate is not between 0 and 1.
    """
    if not 0 < rate < 1:
        raise ValueError("a false positive rate lies between 0 and 1")
    return floor(-bits * log(2) ** 2 / log(rate))
