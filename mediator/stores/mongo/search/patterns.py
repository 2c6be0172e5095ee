r"""Patterns of `like`, and parts of strings, as regular expressions that both servers read alike.

MongoDB has PCRE2, mongo-java-server what Java has. Both know ``\\A``, ``\\z``, ``\\xhh`` and atomic
groups, take a full stop for a code point, and every ASCII character that is no letter or digit for
itself behind a backslash.
"""

from __future__ import annotations

from typing import Final

from mediator.model.patterns import Wildcard, tokens
from mediator.stores.mongo.codec import ordered_text
from mediator.stores.mongo.layout import Document
from mediator.stores.mongo.search.constants import Inexact

__all__ = ["containing", "matching"]

_LONGEST: Final = 16_000
"""Bytes; MongoDB takes expressions of up to 32,764."""

_PREFIXES: Final = "\ue000\ue001"
_CHARACTER: Final = f"(?:[{_PREFIXES}].|[^{_PREFIXES}])"
"""A character of an `ordered_text`, its prefix included."""


def matching(pattern: str, *, ordered: bool) -> Document:
    r"""Return the condition that a string matches a pattern of `like`; raises `Inexact`.

    A part between two ``%`` is looked for where it first occurs, and no further: the groups are
    atomic, so that no pattern takes exponential time.

    Args:
        pattern: The pattern.
        ordered: Whether strings are stored as `ordered_text`.
    """
    one = _CHARACTER if ordered else "."
    parts: list[list[str]] = [[]]
    for token in tokens(pattern):
        if token is Wildcard.ANY:
            parts.append([])
        elif token is Wildcard.ONE:
            parts[-1].append(one)
        else:
            parts[-1].append(_literal(token, ordered=ordered))
    first, *rest = ["".join(part) for part in parts]
    if not rest:
        return _expression(rf"\A{first}\z")
    middle = "".join(f"(?>.*?{part})" for part in rest[:-1] if part)
    return _expression(rf"\A{first}{middle}.*{rest[-1]}\z")


def containing(part: str, *, ordered: bool) -> Document:
    """Return the condition that a string has a part; raises `Inexact`."""
    return _expression(_literal(part, ordered=ordered))


def _literal(text: str, *, ordered: bool) -> str:
    if not ordered:
        return _escaped(text)
    # Whether one of these is a prefix or a character depends on what is before it.
    if any(prefix in text for prefix in _PREFIXES):
        raise Inexact
    return _escaped(ordered_text(text))


def _escaped(text: str) -> str:
    return "".join(map(_escaped_character, text))


def _escaped_character(character: str) -> str:
    if not character.isascii() or character.isalnum():
        return character
    return f"\\{character}" if character.isprintable() else f"\\x{ord(character):02x}"


def _expression(text: str) -> Document:
    if len(text.encode(errors="surrogatepass")) > _LONGEST:
        raise Inexact
    return {"$regex": text, "$options": "s"}
