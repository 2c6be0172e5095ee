"""Constants of filters in the form in which the values they are compared with are stored."""

from __future__ import annotations

from typing import Any, Final

from bson.int64 import Int64

from mediator.schema.types import SCALARS, FieldType, Value
from mediator.stores.mongo.codec import item_codec, ordered_text
from mediator.stores.mongo.read.ordering import SATURATION

__all__ = ["Constants", "Inexact"]

_FIRST_SURROGATE: Final = "\ud800"


class Inexact(Exception):
    """The server would not do exactly what a filter means."""


class Constants:
    """How constants are compared with values of one kind.

    Args:
        type_: The type of the values; None: they are JSON, within a document.
        ordered: Whether texts are stored as `ordered_text`.
        is_stand_in: Whether the server is mongo-java-server. It mistakes numbers beyond
            `SATURATION`, and compares texts by their UTF-16 code units.
    """

    __slots__ = ("_is_stand_in", "_type", "ordered")

    def __init__(self, type_: FieldType | None, *, ordered: bool, is_stand_in: bool) -> None:
        self._type = type_
        self.ordered = ordered
        self._is_stand_in = is_stand_in

    def equals(self, value: Value) -> list[Any]:
        """Return the stored forms of a value that is not null; raises `Inexact`."""
        if isinstance(value, str) and self.ordered:
            return [ordered_text(value)]
        if self._type is None:
            return [self._json(value)]
        if self._type not in SCALARS:
            raise Inexact
        if isinstance(value, bytes):
            # A field that is given an index stores texts from then on.
            return [value, value.decode("latin-1")]
        return [item_codec(self._type).encode(value)]

    def bound(self, value: Value) -> Any:
        """Return a value's stored form, which the server orders as we do; raises `Inexact`."""
        if isinstance(value, bytes) or (self._type is None and isinstance(value, bool)):
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
        if self._is_stand_in and max(text, default="") >= _FIRST_SURROGATE:
            raise Inexact

    def _check_size(self, number: float) -> None:
        if self._is_stand_in and abs(number) > SATURATION:
            raise Inexact
