"""Zipf's distribution: the k-th most popular thing is asked for 1/k as often as the first."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TypeVar

__all__ = ["draw"]

T = TypeVar("T")


def draw(things: Sequence[T], count: int, seed: int) -> list[T]:
    """Draw things with replacement.

    Args:
        things: The most popular one first.
        count: How many to draw.
        seed: Where the random numbers begin.
    """
    weights = [1 / rank for rank in range(1, len(things) + 1)]
    return Random(seed).choices(things, weights, k=count)
