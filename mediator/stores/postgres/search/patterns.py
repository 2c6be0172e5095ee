"""Converts patterns of `like` to patterns of LIKE, and to ranges of strings that can match."""

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
    r"""Return the pattern for LIKE … ESCAPE '\'; repeated ``%`` become one.

    Raises:
        ValueError: A backslash ends the pattern.
    """
    return "".join(map(_escaped, tokens(pattern)))


def _escaped(token: Token) -> str:
    return _SPECIAL.sub(r"\\\g<0>", token) if isinstance(token, str) else _WILD[token]


def prefix_range(pattern: str, max_characters: int) -> tuple[str, str] | None:
    """Return the half-open range of strings that begin with the pattern's literal prefix.

    Args:
        pattern: A pattern of `like`.
        max_characters: Maximum length of the prefix.

    Returns:
        The two bounds; None if the pattern can begin with anything.

    Raises:
        ValueError: A backslash ends the pattern.
    """
    first = next(iter(tokens(pattern)), None)
    if not isinstance(first, str):
        return None
    end = _successor(first[:max_characters])
    return None if end is None else (first[:max_characters], end)


def _successor(prefix: str) -> str | None:
    """Return the least string, by bytes, greater than all strings with a prefix."""
    stem = prefix.rstrip(_LAST)
    if not stem:
        return None
    last = ord(stem[-1]) + 1
    return stem[:-1] + chr(_SURROGATES.stop if last in _SURROGATES else last)
