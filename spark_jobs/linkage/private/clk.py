"""Cryptographic long-term keys: one keyed Bloom filter for each record (docs/papers/pprl.md, 2.1).

They contain what a comparison needs, and more than should reach an attacker:
docs/linkage-security.md says what they protect against, and which attack each hardening prevents.
"""

from __future__ import annotations

import hashlib
import hmac
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from random import Random
from typing import Final, TypeAlias

__all__ = ["Clk", "ClkShape", "Hardening", "Keys", "harden", "hardened_bits", "normalised"]

_MOST_REMEMBERED: Final = 200_000
"""N-grams whose bits are remembered at most; those beyond are computed again each time."""

_BLANK: Final = " "
_FIRST: Final = "sha1"
"""Digest under HMAC that gives the first position of an n-gram."""
_SECOND: Final = "md5"
"""The one that gives the distance to the next."""


def ngrams(value: str) -> list[str]:
    """Cut a value into overlapping pairs of characters, after putting a blank on both sides.

    ``tom`` gives ``" t", "to", "om", "m "``. A value without characters has none.
    """
    if not value:
        return []
    padded = f"{_BLANK}{value}{_BLANK}"
    return [padded[at : at + 2] for at in range(len(padded) - 1)]


def normalised(value: str) -> str:
    """Remove what differs between records of one person: case, accents, repeated blanks.

    Letters are decomposed (NFKD), combining characters dropped, and what is neither letter nor
    digit counts as a blank. The result is stable: normalised again it is the same.
    """
    if value.isascii():
        letters = value.lower()
    else:
        # Before as well: compatibility characters, such as №, decompose to capitals.
        decomposed = unicodedata.normalize("NFKD", value).casefold()
        decomposed = unicodedata.normalize("NFKD", decomposed)
        letters = "".join([c for c in decomposed if not unicodedata.combining(c)])
    if letters.isalnum():
        return letters
    return _BLANK.join("".join([c if c.isalnum() else _BLANK for c in letters]).split())


@dataclass(frozen=True, slots=True)
class ClkShape:
    """How records are encoded; both owners must agree on it.

    Attributes:
        bits: Length of the bit array (l).
        hashes: Bits that each n-gram sets (k).
    """

    bits: int = 1000
    hashes: int = 20

    def __post_init__(self) -> None:
        if self.bits < 2 or not 1 <= self.hashes <= self.bits:  # noqa: PLR2004
            raise ValueError("An encoding needs 2 bits and 1 hash at least.")
        for name in (_FIRST, _SECOND):
            if name not in hashlib.algorithms_available:
                raise ValueError(f"There is no digest {name!r} here.")


@dataclass(frozen=True, slots=True)
class Keys:
    """The owners' shared secrets, a key for each digest; they never leave their machines."""

    first: bytes = field(repr=False)
    second: bytes = field(repr=False)


class Clk:
    """Encodes records.

    A salt is mixed into the keys: a value that is stable for a person, so that equal n-grams of
    different people set different bits.
    """

    def __init__(self, shape: ClkShape, keys: Keys, salt: bytes = b"") -> None:
        self.shape = shape
        self._first = partial(hmac.digest, keys.first + salt, digest=_FIRST)
        self._second = partial(hmac.digest, keys.second + salt, digest=_SECOND)
        self._masks: dict[str, int] = {}

    def positions(self, ngram: str) -> tuple[int, ...]:
        """Return the bits that an n-gram sets: ``(f + i * g) mod l`` for i in 1..k."""
        data = ngram.encode()
        start = int.from_bytes(self._first(data))
        step = int.from_bytes(self._second(data))
        bits, hashes = self.shape.bits, self.shape.hashes
        return tuple([(start + number * step) % bits for number in range(1, hashes + 1)])

    def encode(self, values: Sequence[str]) -> int:
        """Encode a record: the n-grams of all of its normalised values go into one array.

        Returns:
            The array as a number: position 0 is its highest bit, of `shape.bits`.
        """
        masks, record = self._masks, 0
        for value in values:
            for ngram in ngrams(value):
                mask = masks.get(ngram)
                record |= self._mask(ngram) if mask is None else mask
        return record

    def _mask(self, ngram: str) -> int:
        mask = mask_of(self.positions(ngram), self.shape.bits)
        if len(self._masks) < _MOST_REMEMBERED:
            self._masks[ngram] = mask
        return mask


def mask_of(positions: Iterable[int], bits: int) -> int:
    """Set positions in an array of `bits` bits, position 0 highest."""
    mask = 0
    for position in positions:
        mask |= 1 << (bits - 1 - position)
    return mask


class Hardening(StrEnum):
    """A change of a record's array after encoding."""

    XOR_FOLD = "xor-fold"
    BALANCE = "balance"


Hardened: TypeAlias = Callable[[int], int]


def hardened_bits(bits: int, steps: Sequence[Hardening]) -> int:
    """Return the length of the arrays after some steps; raises `ValueError` for an odd fold."""
    for step in steps:
        if step is Hardening.XOR_FOLD and bits % 2:
            raise ValueError(f"An array of {bits} bits cannot be folded in two.")
        bits = bits // 2 if step is Hardening.XOR_FOLD else bits * 2
    return bits


def harden(bits: int, steps: Sequence[Hardening], key: bytes) -> Hardened:
    """Return a function that applies the steps, one after the other, to arrays of `bits` bits.

    Folding combines the two halves by XOR (Schnell and Borgs 2016). Balancing appends the
    complement and permutes the whole by the key, so that all arrays have as many bits set.
    """
    doing: list[Hardened] = []
    for step in steps:
        doing.append(_folding(bits) if step is Hardening.XOR_FOLD else _balancing(bits, key))
        bits = hardened_bits(bits, (step,))

    def apply(record: int) -> int:
        for done in doing:
            record = done(record)
        return record

    return apply


def _folding(bits: int) -> Hardened:
    half = bits // 2
    low = (1 << half) - 1
    return lambda record: (record >> half) ^ (record & low)


def _balancing(bits: int, key: bytes) -> Hardened:
    # The order is a secret of the owners: a generator that was seeded by a keyed digest.
    order = list(range(2 * bits))
    Random(hmac.digest(key, b"balance", "sha256")).shuffle(order)  # noqa: S311 - see above
    ones = (1 << bits) - 1

    def balance(record: int) -> int:
        text = f"{(record << bits) | (record ^ ones):0{2 * bits}b}"
        return int("".join([text[at] for at in order]), 2)

    return balance
