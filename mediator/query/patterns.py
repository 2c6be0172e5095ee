r"""LIKE patterns: ``%`` for any characters, ``_`` for one, ``\`` before what is meant literally.

Matching is by segments between the ``%``, each found as early as possible: no pattern, however
hostile, takes more than the product of its length and the text's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from functools import lru_cache
from typing import TypeAlias

__all__ = ["Token", "Wildcard", "matcher", "tokens"]


class Wildcard(Enum):
    """What a pattern may hold beside literal text."""

    ANY = auto()
    ONE = auto()


Token: TypeAlias = str | Wildcard


def tokens(pattern: str) -> tuple[Token, ...]:
    """Return a pattern as literal texts and wildcards; repeated ``%`` are one.

    Raises:
        ValueError: A backslash ends the pattern, with nothing to take literally.
    """
    found: list[Token] = []
    rest = iter(pattern)
    for character in rest:
        if character == "%":
            if found[-1:] != [Wildcard.ANY]:
                found.append(Wildcard.ANY)
        elif character == "_":
            found.append(Wildcard.ONE)
        else:
            _add_literal(found, next(rest, None) if character == "\\" else character)
    return tuple(found)


def _add_literal(found: list[Token], character: str | None) -> None:
    if character is None:
        raise ValueError("a backslash ends the pattern")
    if found and isinstance(found[-1], str):
        found[-1] += character
    else:
        found.append(character)


_Segment: TypeAlias = str | tuple[str | None, ...]
"""What stands between two ``%``: a text, or characters with None for any one among them."""


@lru_cache(maxsize=256)
def matcher(pattern: str) -> Callable[[str], bool]:
    """Return what tells whether a text matches a pattern entirely."""
    segments = _segments(tokens(pattern))
    if len(segments) == 1:
        only = segments[0]
        return lambda text: len(text) == len(only) and _stands(only, text, 0)
    first, *middle, last = segments

    def matches(text: str) -> bool:
        if len(text) < len(first) + len(last) or not _stands(first, text, 0):
            return False
        end = len(text) - len(last)
        return _stands(last, text, end) and _follow(middle, text, len(first), end)

    return matches


def _segments(found: Sequence[Token]) -> list[_Segment]:
    segments: list[list[str | None]] = [[]]
    for token in found:
        if token is Wildcard.ANY:
            segments.append([])
        elif token is Wildcard.ONE:
            segments[-1].append(None)
        else:
            segments[-1] += token
    return [tuple(s) if None in s else "".join(filter(None, s)) for s in segments]


def _stands(segment: _Segment, text: str, at: int) -> bool:
    if isinstance(segment, str):
        return text.startswith(segment, at)
    return all(c is None or c == text[at + i] for i, c in enumerate(segment))


def _follow(segments: Sequence[_Segment], text: str, start: int, end: int) -> bool:
    for segment in segments:
        at = _find(segment, text, start, end)
        if at is None:
            return False
        start = at + len(segment)
    return start <= end


def _find(segment: _Segment, text: str, start: int, end: int) -> int | None:
    if isinstance(segment, str):
        at = text.find(segment, start, end)
        return at if at >= 0 else None
    last = end - len(segment)
    return next((at for at in range(start, last + 1) if _stands(segment, text, at)), None)
