"""How large a filter has to be; docs/papers/cache_sketch.md, "Sizes"."""

from __future__ import annotations

from math import ceil, exp, expm1, floor, log, log1p
from typing import Final

from sketch.filter.shape import FilterShape

__all__ = ["best_hashes", "capacity", "false_positive_rate", "shape_for", "shape_of_bits"]

_LN_2: Final = log(2)
_HASHES: Final = range(1, 33)


def false_positive_rate(bits: int, hashes: float, keys: int) -> float:
    """Return the share of keys never added that are found: (1 - e^(-kn/m))^k."""
    return float((-expm1(-hashes * keys / bits)) ** hashes)


def best_hashes(bits: int, keys: int) -> float:
    """Return the number of bits of a key, not rounded, that finds the fewest keys wrongly."""
    return _LN_2 * bits / keys


def capacity(bits: int, rate: float) -> int:
    """Return how many keys a filter may hold at a false positive rate, with the best k.

    Raises:
        ValueError: The rate is not between 0 and 1.
    """
    return floor(-bits * _LN_2**2 / _log_of(rate))


def shape_for(keys: int, rate: float, seed: int = 0) -> FilterShape:
    """Return the smallest shape that holds so many keys at no more than a false positive rate.

    Raises:
        ValueError: The rate is not between 0 and 1, there are no keys, or too many for a filter.
    """
    if keys < 1:
        raise ValueError("a filter is for one key at least")
    bits, hashes = min((_bits_for(keys, rate, hashes), hashes) for hashes in _HASHES)
    return FilterShape(bits, hashes, seed)


def shape_of_bits(bits: int, keys: int, seed: int = 0) -> FilterShape:
    """Return the shape of so many bits that finds the fewest keys wrongly.

    Raises:
        ValueError: There cannot be so many bits, or there are no keys.
    """
    if keys < 1:
        raise ValueError("a filter is for one key at least")
    hashes = min(_HASHES, key=lambda hashes: false_positive_rate(bits, hashes, keys))
    return FilterShape(bits, hashes, seed)


def _bits_for(keys: int, rate: float, hashes: int) -> int:
    """Return the least multiple of 8 that keeps the rate with so many bits of a key."""
    share = exp(_log_of(rate) / hashes)
    return 8 * ceil(-hashes * keys / log1p(-share) / 8)


def _log_of(rate: float) -> float:
    if not 0 < rate < 1:
        raise ValueError("a false positive rate lies between 0 and 1")
    return log(rate)
