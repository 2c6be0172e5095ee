"""Suggestions of known names for unknown ones, to end refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final

__all__ = ["did_you_mean", "differing_letters", "nearest"]

_MAX_CHARACTERS: Final = 64
"""Limit of characters of an unknown name; known names have no more."""

_PAIR: Final = 2

_MAX_NAMES: Final = 500
"""Limit of known names that are checked."""

_MAX_COMPARED: Final = 64
"""Limit of known names compared letter by letter, at some microseconds each."""


def did_you_mean(
    name: Any, known: Iterable[str], may_know: Callable[[str], bool] | None = None
) -> str:
    """Return ``; did you mean "price"?``, to end a sentence about a name, or nothing.

    `may_know` decides which names the reader of the sentence may know; None: all of them.
    """
    near = nearest(name, known, may_know) if isinstance(name, str) else None
    return "" if near is None else f'; did you mean "{near}"?'


def nearest(
    name: str, known: Iterable[str], may_know: Callable[[str], bool] | None = None
) -> str | None:
    """Return the nearest known name that may be meant, ignoring case, or None.

    It differs in only one place, by the fewest letters: missing, wrong, additional or exchanged.
    The search takes less than a millisecond, whatever the names.
    """
    if len(name) > _MAX_CHARACTERS:
        return None
    near = ((distance, n) for distance, n in _near(name.casefold(), known) if n != name)
    if may_know is not None:  # before choosing: a hidden name must not displace a visible one
        near = (pair for pair in near if may_know(pair[1]))
    return min(near, default=(0, None))[1]


def _near(name: str, known: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield names that may be meant, with the number of differing letters.

    It is at most two, or a third of a longer name; and never more than half.
    """
    max_distance = min(max(2, (len(name) + 2) // 3), len(name) // 2)
    for candidate in islice(_alike(name, islice(known, _MAX_NAMES), max_distance), _MAX_COMPARED):
        distance = differing_letters(name, candidate.casefold())
        if distance <= max_distance:
            yield distance, candidate


def _alike(name: str, known: Iterable[str], max_difference: int) -> Iterator[str]:
    """Yield names of about this length that begin or end alike, as all candidates do."""
    quarter = (len(name) + 3) // 4
    start, end = name[:quarter], name[-quarter:]
    for candidate in known:
        if abs(len(candidate) - len(name)) <= max_difference:
            folded = candidate.casefold()
            if folded.startswith(start) or folded.endswith(end):
                yield candidate


def differing_letters(left: str, right: str) -> int:
    """Return the length of the part between the shared beginning and end of two names.

    Two exchanged letters count as one.
    """
    shared = _prefix_length(left, right)
    left, right = left[shared:][::-1], right[shared:][::-1]
    shared = _prefix_length(left, right)
    left, right = left[shared:], right[shared:]
    exchanged = len(left) == _PAIR and left == right[::-1]
    return 1 if exchanged else max(len(left), len(right))


def _prefix_length(left: str, right: str) -> int:
    """Return the length of the common prefix."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[:middle] == right[:middle]:
            low = middle
        else:
            high = middle - 1
    return low
