"""Which of the known names is meant by one that is not known: how a refusal ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final

__all__ = ["did_you_mean", "differing_letters", "nearest"]

_LONGEST: Final = 64
"""Characters of a name that is looked for; those that there are have no more."""

_PAIR: Final = 2

_MOST: Final = 500
"""Known names that are looked at."""

_MOST_COMPARED: Final = 64
"""Known names that are compared letter by letter, which takes some microseconds each."""


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
    """Return the known name that may be meant, if there is one, whatever the case of letters.

    It differs in one place only, by the fewest letters: some are missing, wrong, too many, or
    exchanged. To find it takes less than a millisecond, whoever chose the names.
    """
    if len(name) > _LONGEST:
        return None
    near = ((far, each) for far, each in _near(name.casefold(), known) if each != name)
    if may_know is not None:  # before the nearest is chosen: what is hidden must hide no other
        near = (each for each in near if may_know(each[1]))
    return min(near, default=(0, None))[1]


def _near(name: str, known: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield names that may be meant, with how many letters differ.

    At most two do, or a third of them in a longer name; and never more than half.
    """
    most = min(max(2, (len(name) + 2) // 3), len(name) // 2)
    for each in islice(_alike(name, islice(known, _MOST), most), _MOST_COMPARED):
        differing = differing_letters(name, each.casefold())
        if differing <= most:
            yield differing, each


def _alike(name: str, known: Iterable[str], most: int) -> Iterator[str]:
    """Yield names of about this length that begin or end alike, as all do that may be meant."""
    quarter = (len(name) + 3) // 4
    start, end = name[:quarter], name[-quarter:]
    for each in known:
        if abs(len(each) - len(name)) <= most:
            folded = each.casefold()
            if folded.startswith(start) or folded.endswith(end):
                yield each


def differing_letters(one: str, other: str) -> int:
    """Return the length of what is between the beginning and the end that both names share.

    Two letters that are exchanged count as one.
    """
    shared = _shared(one, other)
    one, other = one[shared:][::-1], other[shared:][::-1]
    shared = _shared(one, other)
    one, other = one[shared:], other[shared:]
    exchanged = len(one) == _PAIR and one == other[::-1]
    return 1 if exchanged else max(len(one), len(other))


def _shared(one: str, other: str) -> int:
    """Return how many letters of their beginnings agree."""
    least, most = 0, min(len(one), len(other))
    while least < most:
        middle = (least + most + 1) // 2
        if one[:middle] == other[:middle]:
            least = middle
        else:
            most = middle - 1
    return least
