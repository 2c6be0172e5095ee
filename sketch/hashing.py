"""One hash family, byte by byte the same in every language; see docs/sketch-wire.md."""

from __future__ import annotations

from typing import Final

import mmh3

from sketch.bloom import FilterShape

__all__ = ["positions"]

_WORD: Final = 0xFFFF_FFFF
_STRIDE: Final = 0x4000_0001
"""An odd stride of a quarter of the ring at least, so that a key's bits lie apart."""


def positions(key: str, shape: FilterShape) -> tuple[int, ...]:
    """Return the bits of a key, `shape.hashes` numbers below `shape.bits`."""
    words = mmh3.hash128(key.encode(), shape.seed, x64arch=False)
    at = words & _WORD
    stride = (words >> 33) & 0x7FFF_FFFF | _STRIDE
    return tuple(
        [((at + number * stride & _WORD) * shape.bits) >> 32 for number in range(shape.hashes)]
    )
