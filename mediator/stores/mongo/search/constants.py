r"""Constants of filters as the values that they are compared with are stored; patterns as regexes.

Both servers have to read a regular expression alike. MongoDB has PCRE2, mongo-java-server what Java
has. Both know ``\\A``, ``\\z``, ``\\xhh`` and atomic groups, take a full stop for a code point, and
every ASCII character that is no letter or digit for itself behind a backslash.
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
_LONGEST: Final = 16_000
"""Bytes; MongoDB takes expressions of up to 32,764."""

_PREFIXES: Final = "\ue000\ue001"
_CHARACTER: Final = f"(?:[{_PREFIXES}].|[^{_PREFIXES}])"
"""A character of an `ordered_text`, its prefix included."""


class Inexact(Exception):
    """The server would not do exactly what a filter means."""


@dataclass(frozen=True, slots=True)
class Constants:
    """How constants are compared with values of one kind.

    Attributes:
        type: The type of the values; None: they are JSON, within a document.
        ordered: Whether texts are stored as `ordered_text`.
        is_stand_in: Whether the server is mongo-java-server. It mistakes numbers beyond
            `SATURATION`, and compares texts by their UTF-16 code units.
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
        """Return a value's stored form, which the server orders as we do; raises `Inexact`."""
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
        # Up to here, characters have the same order in UTF-8 and in UTF-16.
        if self.is_stand_in and max(text, default="") >= _FIRST_SURROGATE:
            raise Inexact

    def _check_size(self, number: float) -> None:
        if self.is_stand_in and abs(number) > SATURATION:
            raise Inexact


def matching(pattern: str, *, ordered: bool) -> Document:
    """Return the condition that a string matches a pattern of `like`; raises `Inexact`.

    A part between two ``%`` is looked for where it first occurs, and no further: the groups are
    atomic, so that no pattern takes exponential time.
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
