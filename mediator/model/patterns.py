r"""LIKE patterns: ``%`` for any characters, ``_`` for one, ``\`` before what is meant literally.

RE2 matches them in time that is linear in the text, whatever the pattern, and other threads run
meanwhile. A character is a code point; a full stop of RE2 is one, too, newlines included.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from functools import lru_cache
from typing import Final, TypeAlias

import re2

__all__ = ["Token", "Wildcard", "matcher", "tokens"]

_MEMORY: Final = 2**19
"""Bytes that a compiled pattern may take, with what RE2 remembers of its states."""


class Wildcard(Enum):
    """The wildcards of a pattern."""

    ANY = auto()
    ONE = auto()


Token: TypeAlias = str | Wildcard

_EXPRESSIONS: Final = {Wildcard.ANY: ".*", Wildcard.ONE: "."}


def tokens(pattern: str) -> tuple[Token, ...]:
    """Return a pattern as literal texts and wildcards; repeated ``%`` are one.

    Raises:
        ValueError: A backslash ends the pattern, with nothing to take literally.
    """
    result: list[Token] = []
    rest = iter(pattern)
    for character in rest:
        if character == "%":
            if result[-1:] != [Wildcard.ANY]:
                result.append(Wildcard.ANY)
        elif character == "_":
            result.append(Wildcard.ONE)
        else:
            _add_literal(result, next(rest, None) if character == "\\" else character)
    return tuple(result)


def _add_literal(result: list[Token], character: str | None) -> None:
    if character is None:
        raise ValueError("a backslash ends the pattern")
    if result and isinstance(result[-1], str):
        result[-1] += character
    else:
        result.append(character)


@lru_cache(maxsize=128)
def matcher(pattern: str) -> Callable[[str], bool]:
    """Return the test of whether a text matches a pattern entirely.

    Raises:
        ValueError: A backslash ends the pattern.
    """
    fullmatch = re2.compile(_expression(pattern), _options()).fullmatch
    return lambda text: fullmatch(text.encode()) is not None


def _expression(pattern: str) -> bytes:
    return "".join(
        re2.escape(token) if isinstance(token, str) else _EXPRESSIONS[token]
        for token in tokens(pattern)
    ).encode()


def _options() -> re2.Options:
    options = re2.Options()
    options.dot_nl = True
    options.never_capture = True
    options.log_errors = False
    options.max_mem = _MEMORY
    return options
