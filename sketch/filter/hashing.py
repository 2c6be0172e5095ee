"""One hash family, byte by byte the same in every language; see docs/sketch-wire.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, Final, TypeAlias, cast

import mmh3
import numpy as np
from numpy.typing import NDArray

from sketch.filter.shape import FilterShape

__all__ = [
    "STRIDE",
    "WORD",
    "Key",
    "Keys",
    "as_words",
    "hash_all",
    "position_rounds",
    "positions",
    "positions_of",
]

Key: TypeAlias = str | bytes
"""Text counts as its bytes in UTF-8."""

Keys: TypeAlias = Sequence[str] | Sequence[bytes]

Hashes: TypeAlias = NDArray[np.uint32]
"""One 128-bit hash in each row: four words."""

WORD: Final = 0xFFFF_FFFF
STRIDE: Final = 0x4000_0001
"""An odd stride of at least a quarter of the ring, so that a key's bits lie apart."""

_WORDS: Final = 4
_HASH_BYTES: Final = 16
_LITTLE: Final = np.dtype("<u4")
_WORD_BITS: Final = np.uint64(32)


def positions(key: Key, shape: FilterShape) -> tuple[int, ...]:
    """Return the bits of a key, `shape.hashes` numbers below `shape.bits`.

    Raises:
        UnicodeEncodeError: The key is text that UTF-8 cannot encode.
    """
    # Text with lone surrogates would crash mmh3, and the process.
    data = key.encode() if isinstance(key, str) else key
    words = mmh3.mmh3_x86_128_uintdigest(data, shape.seed)
    at = words & WORD
    stride = (words >> 33) & 0x7FFF_FFFF | STRIDE
    bits = shape.bits
    # A word scaled to [0, bits) by multiply and shift: `bits` need not be a power of two.
    return tuple([(at + number * stride & WORD) * bits >> 32 for number in range(shape.hashes)])


def hash_all(keys: Keys, seed: int) -> Hashes:
    """Return the hashes of keys, in their order.

    Raises:
        TypeError: Some keys are text and some are bytes.
        UnicodeEncodeError: A key is text that UTF-8 cannot encode.
    """
    # These loops run no Python code, which would take most of a batch's time.
    digests: Iterable[bytes]
    if keys and isinstance(keys[0], str):
        # Invalid text fails here, before mmh3; encoding each key separately takes a third longer.
        "".join(cast("Sequence[str]", keys)).encode()
        digests = map(mmh3.hash_bytes, keys, repeat(seed), repeat(False))
    else:
        digests = map(mmh3.mmh3_x86_128_digest, cast("Sequence[bytes]", keys), repeat(seed))
    joined = b"".join(digests)
    return np.frombuffer(joined, _LITTLE).reshape(-1, _WORDS)


def positions_of(hashes: NDArray[Any], shape: FilterShape) -> NDArray[np.int64]:
    """Return the bits of many keys, one row for each hash; raises `ValueError`, see `as_words`."""
    return np.stack(list(position_rounds(as_words(hashes), shape)), axis=1)


def as_words(hashes: NDArray[Any]) -> Hashes:
    """Return hashes of any type as rows of four words.

    Raises:
        ValueError: The rows are not hashes.
    """
    row_bytes = hashes.dtype.itemsize * int(np.prod(hashes.shape[1:]))
    if hashes.ndim == 0 or hashes.dtype.hasobject or row_bytes != _HASH_BYTES:
        raise ValueError("each row has to be a hash of 16 bytes")
    raw = np.ascontiguousarray(hashes).reshape(-1)
    return raw.view(_LITTLE).reshape(-1, _WORDS)


def position_rounds(words: Hashes, shape: FilterShape) -> Iterator[NDArray[np.int64]]:
    """Yield the first bit of each key, then the second one of each, and so on."""
    at = words[:, 0].copy()
    stride = words[:, 1] >> np.uint32(1) | np.uint32(STRIDE)
    bits = np.uint64(shape.bits)
    for _ in range(shape.hashes):
        # Positions are below 2³¹: as signed numbers they are the same, and can be indices.
        yield (at * bits >> _WORD_BITS).view(np.int64)
        # Wraps around in 32 bits, as the hash family requires.
        at += stride
