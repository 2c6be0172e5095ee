r"""Encodes constants of filters like the stored values they are compared with; patterns as regexes.

Both servers must read a regular expression alike. MongoDB has PCRE2, mongo-java-server Java's
engine. Both support ``\\A``, ``\\z``, ``\\xhh`` and atomic groups, match a code point with a full
stop, and take every ASCII character but letters and digits literally after a backslash.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from bson.int64 import Int64

from mediator.model.patterns import Wildcard, tokens
from mediator.schema.types import SCALARS, FieldType, Value
from mediator.stores.mongo.codec import item_codec, ordered_text
from mediator.stores.mongo.layout import Document
from mediator.stores.mongo.read.ordering import SATURATION

__all__ = ["Constants", "Inexact", "containing", "matching"]

_FIRST_SURROGATE: Final = "\ud800"
_MAX_PATTERN_BYTES: Final = 16_000
"""Bytes; MongoDB takes expressions of up to 32,764."""

_PREFIXES: Final = "\ue000\ue001"
_CHARACTER: Final = f"(?:[{_PREFIXES}].|[^{_PREFIXES}])"
"""A character of an `ordered_text`, including its prefix."""


class Inexact(Exception):
    """The server cannot evaluate a filter exactly."""


@dataclass(frozen=True, slots=True)
class Constants:
    """How constants are compared with values of one kind.

    Attributes:
        type: The type of the values; None: they are JSON, within a document.
        ordered: Whether texts are stored as `ordered_text`.
        is_stand_in: Whether the server is mongo-java-server. It compares numbers beyond
            `SATURATION` wrongly, and texts by their UTF-16 code units.
    """

    type: FieldType | None
    ordered: bool
    is_stand_in: bool

    def equals(self, value: Value) -> list[Any]:
        """Return the stored forms of a value that is not null; raises `Inexact`."""
        if isinstance(value, str) and self.ordered:
            return [ordered_text(value)]
        if self.type is None:
            return [self._json(value)]
        if self.type not in SCALARS:
            raise Inexact
        return [item_codec(self.type).encode(value)]

    def bound(self, value: Value) -> Any:
        """Return a value's stored form, if the server orders it correctly; raises `Inexact`."""
        if isinstance(value, bytes) or (self.type is None and isinstance(value, bool)):
            raise Inexact
        if isinstance(value, str) and not self.ordered:
            self._check_order(value)
        if isinstance(value, float):
            self._check_size(value)
        return self.equals(value)[0]

    def _json(self, value: Value) -> Any:
        if isinstance(value, bool | str):
            return value
        if isinstance(value, int | float):
            self._check_size(value)
            return Int64(value) if isinstance(value, int) else value
        raise Inexact

    def _check_order(self, text: str) -> None:
        # Below this, characters have the same order in UTF-8 and in UTF-16.
        if self.is_stand_in and max(text, default="") >= _FIRST_SURROGATE:
            raise Inexact

    def _check_size(self, number: float) -> None:
        if self.is_stand_in and abs(number) > SATURATION:
            raise Inexact


def matching(pattern: str, *, ordered: bool) -> Document:
    """Return the condition that a string matches a pattern of `like`; raises `Inexact`.

    A segment between two ``%`` matches only its first occurrence: the groups are atomic, so that no
    pattern takes exponential time.
    """
    any_character = _CHARACTER if ordered else "."
    segments: list[list[str]] = [[]]
    for token in tokens(pattern):
        if token is Wildcard.ANY:
            segments.append([])
        elif token is Wildcard.ONE:
            segments[-1].append(any_character)
        else:
            segments[-1].append(_literal(token, ordered=ordered))
    first, *rest = ["".join(segment) for segment in segments]
    if not rest:
        return _expression(rf"\A{first}\z")
    middle = "".join(f"(?>.*?{segment})" for segment in rest[:-1] if segment)
    return _expression(rf"\A{first}{middle}.*{rest[-1]}\z")


def containing(part: str, *, ordered: bool) -> Document:
    """Return the condition that a string contains a substring; raises `Inexact`."""
    return _expression(_literal(part, ordered=ordered))


def _literal(text: str, *, ordered: bool) -> str:
    if not ordered:
        return _escape(text)
    # Whether one of these is a prefix or a character depends on the character before it.
    if any(prefix in text for prefix in _PREFIXES):
        raise Inexact
    return _escape(ordered_text(text))


def _escape(text: str) -> str:
    return "".join(map(_escape_character, text))


def _escape_character(character: str) -> str:
    if not character.isascii() or character.isalnum():
        return character
    return f"\\{character}" if character.isprintable() else f"\\x{ord(character):02x}"


def _expression(text: str) -> Document:
    if len(text.encode(errors="surrogatepass")) > _MAX_PATTERN_BYTES:
        raise Inexact
    return {"$regex": text, "$options": "s"}
