"""One-to-one assignment of candidates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

__all__ = ["one_to_one"]

Key = TypeVar("Key", int, str)


def one_to_one(weighted: Iterable[tuple[float, Key, Key]]) -> Iterator[tuple[Key, Key]]:
    """Yield pairs, the heaviest first, that share no element with a heavier yielded pair.

    Ties are broken by elements, so the choice is deterministic. A pair that is the best for both of
    its elements is always chosen, which an assignment with the maximum sum does not guarantee.
    """
    used_left: set[Key] = set()
    used_right: set[Key] = set()
    for _, left, right in sorted(weighted, key=lambda pair: (-pair[0], pair[1], pair[2])):
        if left not in used_left and right not in used_right:
            used_left.add(left)
            used_right.add(right)
            yield left, right
