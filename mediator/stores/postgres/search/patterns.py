"""Patterns of `like` as patterns of LIKE, and the range of strings that may match them."""

from __future__ import annotations

import re
from typing import Final

from mediator.model.patterns import Token, Wildcard, tokens

__all__ = ["like_pattern", "prefix_range"]

_WILD: Final = {Wildcard.ANY: "%", Wildcard.ONE: "_"}
_SPECIAL: Final = re.compile(r"[%_\\]")

_LAST: Final = chr(0x10FFFF)
_SURROGATES: Final = range(0xD800, 0xE000)


def like_pattern(pattern: str) -> str:
    r"""Return the pattern for LIKE … ESCAPE '\'; repeated ``%`` are one there.

    Raises:
        ValueError: A backslash ends the pattern.
    """
    return "".join(map(_escaped, tokens(pattern)))


def _escaped(token: Token) -> str:
    return _SPECIAL.sub(r"\\\g<0>", token) if isinstance(token, str) else _WILD[token]


def prefix_range(pattern: str, longest: int) -> tuple[str, str] | None:
    """Return the least string with the pattern's literal beginning, and the least beyond those.

    Args:
        pattern: A pattern of `like`.
        longest: Characters of the beginning that count, at most.

    Returns:
        The two strings; None if the pattern may begin with anything.

    Raises:
        ValueError: A backslash ends the pattern.
    """
    first = next(iter(tokens(pattern)), None)
    if not isinstance(first, str):
        return None
    end = _beyond(first[:longest])
    return None if end is None else (first[:longest], end)


def _beyond(prefix: str) -> str | None:
    """Return the least string, by bytes, that is greater than all that begin with a prefix."""
    stem = prefix.rstrip(_LAST)
    if not stem:
        return None
    last = ord(stem[-1]) + 1
    return stem[:-1] + chr(_SURROGATES.stop if last in _SURROGATES else last)
