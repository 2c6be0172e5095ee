"""Forms of pages: read, with the locations of mistakes, and filled in."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

import orjson
from fastapi import Request
from pydantic import BaseModel, ValidationError

from app.admin.api.responses import NAME
from app.http.framework import read_limited
from app.http.paths import parse_query
from mediator.base.errors import Invalid, Location

__all__ = [
    "LARGEST_DOCUMENT",
    "indented",
    "locations_of",
    "not_expected",
    "read_form",
    "read_model",
    "read_name",
]

_LARGEST: Final = 4_096

_MOST: Final = 20
"""Locations of mistakes that are shown."""

_M = TypeVar("_M", bound=BaseModel)

_NOT_EXPECTED: Final = "The form is not filled in as expected."

LARGEST_DOCUMENT: Final = 4 * 2**20
"""Bytes of a form with a document in it: a job has 1 MiB at most, and each byte may be escaped."""


async def read_form(
    request: Request, allowed: frozenset[str], largest: int = _LARGEST
) -> dict[str, str]:
    """Raises HttpError if the form is too large, or has an unknown or a duplicate field."""
    return parse_query(await read_limited(request, largest), allowed, largest)


def read_name(form: Mapping[str, str], field: str) -> str:
    """Return the name of a database, a class or a tenant that a form has; raises `Invalid`."""
    if not re.fullmatch(NAME, form.get(field, "")):
        raise not_expected(field, "a small letter, then small letters, digits and _, 63 at most")
    return form[field]


def not_expected(field: str, expected: str) -> Invalid:
    """Return the error of a form whose field is not as expected."""
    return Invalid(_NOT_EXPECTED, locations=[Location(field, expected)])


def read_model(model: type[_M], given: Mapping[str, Any] | str, detail: str = _NOT_EXPECTED) -> _M:
    """Return what a form has, or a document in it, as its model.

    Args:
        model: The model.
        given: The fields of the form, or the text of a document in JSON.
        detail: Of the error.

    Raises:
        Invalid: The locations are names of fields, or pointers into the document (RFC 6901).
    """
    try:
        if isinstance(given, str):
            return model.model_validate_json(given)
        return model.model_validate(given)
    except ValidationError as error:
        root = ("",) if isinstance(given, str) else ()
        locations = locations_of(error.errors(include_url=False), root=root)
        raise Invalid(detail, locations=locations) from None


def locations_of(
    errors: Sequence[Any], skipped: int = 0, root: tuple[str, ...] = ()
) -> list[Location]:
    """Return where the first mistakes are that pydantic found.

    The first `skipped` steps of each path to one are replaced by `root`.
    """
    return [
        Location("/".join(map(str, (*root, *each["loc"][skipped:]))), str(each["msg"]))
        for each in errors[:_MOST]
    ]


def indented(value: Any) -> str:
    """Return JSON for people to edit."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
