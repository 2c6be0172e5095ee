"""Cryptographic long-term keys: one keyed Bloom filter for each record (docs/papers/pprl.md, 2.1).

They reveal what a comparison needs, and more than an attacker should get: docs/linkage-security.md
describes what they protect against, and which attack each hardening prevents.
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

__all__ = ["Clk", "ClkShape", "Hardening", "Keys", "harden", "hardened_bits", "normalise"]

_MAX_CACHED_NGRAMS: Final = 200_000
"""Maximum n-grams whose bits are cached; the bits of others are recomputed each time."""

_BLANK: Final = " "
_FIRST_DIGEST: Final = "sha1"
"""HMAC digest that gives the first position of an n-gram."""
_SECOND_DIGEST: Final = "md5"
"""HMAC digest that gives the distance to the next position."""


def ngrams(value: str) -> list[str]:
    """Cut a value, padded with a blank on both sides, into overlapping pairs of characters.

    ``tom`` gives ``" t", "to", "om", "m "``. A value without characters has none.
    """
    if not value:
        return []
    padded = f"{_BLANK}{value}{_BLANK}"
    return [padded[at : at + 2] for at in range(len(padded) - 1)]


def normalise(value: str) -> str:
    """Remove differences between records of one person: case, accents, repeated blanks.

    Letters are decomposed (NFKD), combining characters dropped, and characters other than letters
    and digits become blanks. Normalisation is idempotent.
    """
    if value.isascii():
        letters = value.lower()
    else:
        # Decomposed before folding, too: compatibility characters, such as №, give capitals.
        decomposed = unicodedata.normalize("NFKD", value).casefold()
        decomposed = unicodedata.normalize("NFKD", decomposed)
        letters = "".join([c for c in decomposed if not unicodedata.combining(c)])
    if letters.isalnum():
        return letters
    return _BLANK.join("".join([c if c.isalnum() else _BLANK for c in letters]).split())


@dataclass(frozen=True, slots=True)
class ClkShape:
    """The parameters of the encoding; both owners must agree on them.

    Attributes:
        bits: The length of the bit array (l).
        hashes: The bits that each n-gram sets (k).
    """

    bits: int = 1000
    hashes: int = 20

    def __post_init__(self) -> None:
        if self.bits < 2 or not 1 <= self.hashes <= self.bits:  # noqa: PLR2004
            raise ValueError("An encoding needs 2 bits and 1 hash at least.")
        for name in (_FIRST_DIGEST, _SECOND_DIGEST):
            if name not in hashlib.algorithms_available:
                raise ValueError(f"There is no digest {name!r} here.")


@dataclass(frozen=True, slots=True)
class Keys:
    """The owners' shared secrets, one key per digest; they never leave the owners' machines."""

    first: bytes = field(repr=False)
    second: bytes = field(repr=False)


class Clk:
    """Encodes records.

    A salt, a stable value of a person, is mixed into the keys, so that equal n-grams of different
    people set different bits.
    """

    def __init__(self, shape: ClkShape, keys: Keys, salt: bytes = b"") -> None:
        self.shape = shape
        self._first = partial(hmac.digest, keys.first + salt, digest=_FIRST_DIGEST)
        self._second = partial(hmac.digest, keys.second + salt, digest=_SECOND_DIGEST)
        self._masks: dict[str, int] = {}

    def positions(self, ngram: str) -> tuple[int, ...]:
        """Return the bits that an n-gram sets: ``(f + i * g) mod l`` for i in 1..k."""
        data = ngram.encode()
        start = int.from_bytes(self._first(data))
        step = int.from_bytes(self._second(data))
        bits, hashes = self.shape.bits, self.shape.hashes
        return tuple([(start + number * step) % bits for number in range(1, hashes + 1)])

    def encode(self, values: Sequence[str]) -> int:
        """Encode a record: the n-grams of all its normalised values set bits of one array.

        Returns:
            The array as a number of `shape.bits` bits; position 0 is the highest.
        """
        masks, record = self._masks, 0
        for value in values:
            for ngram in ngrams(value):
                mask = masks.get(ngram)
                record |= self._mask(ngram) if mask is None else mask
        return record

    def _mask(self, ngram: str) -> int:
        mask = mask_of(self.positions(ngram), self.shape.bits)
        if len(self._masks) < _MAX_CACHED_NGRAMS:
            self._masks[ngram] = mask
        return mask


def mask_of(positions: Iterable[int], bits: int) -> int:
    """Return an array of `bits` bits with these positions set, position 0 highest."""
    mask = 0
    for position in positions:
        mask |= 1 << (bits - 1 - position)
    return mask


class Hardening(StrEnum):
    """A transformation of a record's array after encoding."""

    XOR_FOLD = "xor-fold"
    BALANCE = "balance"


ArrayFunction: TypeAlias = Callable[[int], int]


def hardened_bits(bits: int, steps: Sequence[Hardening]) -> int:
    """Return the length of the arrays after the steps; raise `ValueError` for an odd fold."""
    for step in steps:
        if step is Hardening.XOR_FOLD and bits % 2:
            raise ValueError(f"An array of {bits} bits cannot be folded in two.")
        bits = bits // 2 if step is Hardening.XOR_FOLD else bits * 2
    return bits


def harden(bits: int, steps: Sequence[Hardening], key: bytes) -> ArrayFunction:
    """Return a function that applies the steps in sequence to arrays of `bits` bits.

    Folding combines the two halves by XOR (Schnell and Borgs 2016). Balancing appends the
    complement and permutes all bits by the key, so that all arrays have the same cardinality.
    """
    functions: list[ArrayFunction] = []
    for step in steps:
        functions.append(_fold(bits) if step is Hardening.XOR_FOLD else _balance(bits, key))
        bits = hardened_bits(bits, (step,))

    def apply(record: int) -> int:
        for function in functions:
            record = function(record)
        return record

    return apply


def _fold(bits: int) -> ArrayFunction:
    half = bits // 2
    low = (1 << half) - 1
    return lambda record: (record >> half) ^ (record & low)


def _balance(bits: int, key: bytes) -> ArrayFunction:
    # The order is a secret of the owners: the generator is seeded by a keyed digest.
    order = list(range(2 * bits))
    Random(hmac.digest(key, b"balance", "sha256")).shuffle(order)  # noqa: S311 - see above
    ones = (1 << bits) - 1

    def balance(record: int) -> int:
        text = f"{(record << bits) | (record ^ ones):0{2 * bits}b}"
        return int("".join([text[at] for at in order]), 2)

    return balance
