"""Mistakes in JSON that a client sent, each with its place."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, NoReturn

from mediator.base.errors import Invalid, Place
from mediator.schema.limits import MISTAKES_TOLD

__all__ = ["Misfit", "gather", "invalid", "places_below", "token"]

_TOKEN_LENGTH = 128


class Misfit(Exception):
    """A JSON value does not fit its type.

    Knows only the places within the value, so that values which fit pay nothing for pointers.

    Attributes:
        places: Pointer relative to the value, and what is wrong there.
    """

    def __init__(self, detail: str = "", places: Iterable[Place] | None = None) -> None:
        super().__init__(detail)
        self.places = [Place("", detail)] if places is None else list(places)


def token(key: str) -> str:
    """Return `/key` as RFC 6901 section 3 escapes it; shortened, and fit for UTF-8."""
    shown = key[:_TOKEN_LENGTH].encode("utf-8", "backslashreplace").decode()
    return "/" + shown.replace("~", "~0").replace("/", "~1")


def places_below(pointer: str, misfit: Misfit) -> list[Place]:
    """Return the places of a misfit seen from the whole body."""
    return [Place(pointer + place.pointer, place.detail) for place in misfit.places]


def gather(members: Iterable[tuple[str, Any]], decode: Callable[[Any], Any]) -> NoReturn:
    """Raise one `Misfit` with the mistakes of all members, given as (token, JSON value)."""
    places: list[Place] = []
    for pointer, raw in members:
        try:
            decode(raw)
        except Misfit as misfit:
            places += places_below(pointer, misfit)
            if len(places) >= MISTAKES_TOLD:
                break
    raise Misfit(places=places)


def invalid(places: Iterable[Place], kind: type[Invalid] = Invalid) -> Invalid:
    """Make the error that tells the places."""
    told = list(islice(places, MISTAKES_TOLD))
    first = told[0]
    detail = f"{first.pointer or 'The body'} {first.detail}"
    if len(told) > 1:
        detail += f" (and {len(told) - 1} more)"
    return kind(detail, places=told)
