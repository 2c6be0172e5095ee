"""Cryptographic long-term keys: one keyed Bloom filter for each record (docs/papers/pprl.md, 2.1).

They keep what a comparison needs, and not all that an attacker would like to be kept from him:
docs/linkage-security.md tells what they protect against.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from spark_jobs.linkage.private.tokens import ngrams

__all__ = ["Clk", "ClkShape", "Keys", "mask_of"]

_MOST_REMEMBERED: Final = 200_000
"""N-grams whose bits are remembered at most; those beyond are computed again each time."""


@dataclass(frozen=True, slots=True)
class ClkShape:
    """How records are encoded; both owners must agree on it.

    Attributes:
        bits: Length of the bit array (l).
        hashes: Bits that each n-gram sets (k).
        ngram: Characters of an n-gram.
        first: Digest under HMAC that gives the first position.
        second: The one that gives the distance to the next.
    """

    bits: int = 1000
    hashes: int = 20
    ngram: int = 2
    first: str = "sha1"
    second: str = "md5"

    def __post_init__(self) -> None:
        if self.bits < 2 or not 1 <= self.hashes <= self.bits or self.ngram < 1:  # noqa: PLR2004
            raise ValueError("An encoding needs 2 bits, 1 hash and 1 character at least.")
        for name in (self.first, self.second):
            if name not in hashlib.algorithms_available:
                raise ValueError(f"There is no digest {name!r} here.")


@dataclass(frozen=True, slots=True)
class Keys:
    """The owners' shared secrets; they never leave their machines.

    Attributes:
        first: Key of the first digest.
        second: Key of the second.
    """

    first: bytes = field(repr=False)
    second: bytes = field(repr=False)


class Clk:
    """Encodes records.

    Args:
        shape: How.
        keys: The owners' secrets.
        salt: Mixed into the keys: a value that is stable for a person, so that equal n-grams of
            different people set different bits. Empty: none.
    """

    def __init__(self, shape: ClkShape, keys: Keys, salt: bytes = b"") -> None:
        self.shape = shape
        self._first = partial(hmac.digest, keys.first + salt, digest=shape.first)
        self._second = partial(hmac.digest, keys.second + salt, digest=shape.second)
        self._masks: dict[str, int] = {}

    def positions(self, ngram: str) -> tuple[int, ...]:
        """Return the bits that an n-gram sets: ``(f + i * g) mod l`` for i in 1..k."""
        data = ngram.encode()
        start = int.from_bytes(self._first(data))
        step = int.from_bytes(self._second(data))
        bits, hashes = self.shape.bits, self.shape.hashes
        return tuple([(start + number * step) % bits for number in range(1, hashes + 1)])

    def encode(self, values: Sequence[str]) -> int:
        """Encode a record: the n-grams of all of its values go into one array.

        Args:
            values: Its linkage attributes, normalised.

        Returns:
            The array as a number: position 0 is its highest bit, of `shape.bits`.
        """
        size, masks = self.shape.ngram, self._masks
        record = 0
        for value in values:
            for ngram in ngrams(value, size):
                mask = masks.get(ngram)
                record |= self._mask(ngram) if mask is None else mask
        return record

    def _mask(self, ngram: str) -> int:
        mask = mask_of(self.positions(ngram), self.shape.bits)
        if len(self._masks) < _MOST_REMEMBERED:
            self._masks[ngram] = mask
        return mask


def mask_of(positions: Iterable[int], bits: int) -> int:
    """Set positions in an array of so many bits, position 0 highest."""
    mask = 0
    for position in positions:
        mask |= 1 << (bits - 1 - position)
    return mask
