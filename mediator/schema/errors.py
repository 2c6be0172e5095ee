"""Errors in JSON that a client sent, each with its location."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, NoReturn

from mediator.base.errors import Invalid, Location, MediatorError
from mediator.schema.limits import MAX_ERRORS

__all__ = ["InvalidValue", "invalid", "locations_below", "raise_errors", "token"]

_TOKEN_LENGTH = 128


class InvalidValue(Exception):
    """A JSON value is not valid for its type.

    It holds locations within the value only, so that valid values pay nothing for pointers.

    Attributes:
        locations: Pointers relative to the value, each with the mistake there.
    """

    def __init__(self, detail: str = "", locations: Iterable[Location] | None = None) -> None:
        super().__init__(detail)
        self.locations = [Location("", detail)] if locations is None else list(locations)


def token(key: str) -> str:
    """Return `/key` escaped as in RFC 6901 section 3, shortened, and encodable in UTF-8."""
    text = key[:_TOKEN_LENGTH].encode("utf-8", "backslashreplace").decode()
    # `~` first, because the escape of `/` contains one.
    return "/" + text.replace("~", "~0").replace("/", "~1")


def locations_below(pointer: str, error: InvalidValue | MediatorError) -> list[Location]:
    """Return the locations of an error in a part of a body, relative to the whole body."""
    return [Location(pointer + at.pointer, at.detail) for at in error.locations]


def raise_errors(members: Iterable[tuple[str, Any]], decode: Callable[[Any], Any]) -> NoReturn:
    """Raise one `InvalidValue` with the errors of all members, given as (token, JSON value)."""
    locations: list[Location] = []
    for pointer, raw in members:
        try:
            decode(raw)
        except InvalidValue as error:
            locations += locations_below(pointer, error)
            if len(locations) >= MAX_ERRORS:
                break
    raise InvalidValue(locations=locations)


def invalid(locations: Iterable[Location], kind: type[Invalid] = Invalid) -> Invalid:
    listed = list(islice(locations, MAX_ERRORS))
    first = listed[0]
    detail = f"{first.pointer or 'The body'} {first.detail}"
    if len(listed) > 1:
        detail += f" (and {len(listed) - 1} more)"
    return kind(detail, locations=listed)
