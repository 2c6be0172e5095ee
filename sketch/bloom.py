"""Bloom filters: their shape, and the plain filter."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FilterShape"]


@dataclass(frozen=True, slots=True)
class FilterShape:
    """What two filters must share to be united.

    Attributes:
        bits: Size of the bit array (m), a multiple of 8.
        hashes: Bits of a key (k).
        seed: Of the hash function.
    """

    bits: int = 116_800
    hashes: int = 4
    seed: int = 0
