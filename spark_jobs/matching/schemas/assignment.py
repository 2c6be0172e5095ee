"""Which candidates are chosen: each element once, or every pair that is probable enough."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

__all__ = ["one_to_one"]

Key = TypeVar("Key", int, str)


def one_to_one(weighed: Iterable[tuple[float, Key, Key]]) -> Iterator[tuple[Key, Key]]:
    """Yield pairs, the heaviest first, that share no element with a heavier one.

    Equal weights follow by their elements: the choice is the same every time. A pair that is the
    best for both of its elements is always chosen, which an assignment of the greatest sum does
    not promise.
    """
    used_left: set[Key] = set()
    used_right: set[Key] = set()
    for _, left, right in sorted(weighed, key=lambda each: (-each[0], each[1], each[2])):
        if left not in used_left and right not in used_right:
            used_left.add(left)
            used_right.add(right)
            yield left, right
