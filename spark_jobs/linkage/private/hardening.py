"""Variants of an encoding that tell an attacker less, and cost some quality.

Published attacks go by the frequency of bits and of whole patterns; docs/linkage-security.md tells
which of these answers which of them.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence
from enum import StrEnum
from random import Random
from typing import Final, TypeAlias

__all__ = ["Hardened", "Hardening", "harden", "hardened_bits"]

_DIGEST: Final = "sha256"


class Hardening(StrEnum):
    """What is done to a record's array after it was made."""

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
    """Return what applies some steps, one after the other, to arrays of so many bits.

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
    Random(hmac.digest(key, b"balance", _DIGEST)).shuffle(order)  # noqa: S311 - see above
    ones = (1 << bits) - 1

    def balance(record: int) -> int:
        text = f"{(record << bits) | (record ^ ones):0{2 * bits}b}"
        return int("".join([text[at] for at in order]), 2)

    return balance
