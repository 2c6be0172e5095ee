"""Forms of pages: parsed and filled in, with the locations of mistakes."""

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
    "MAX_DOCUMENT_BYTES",
    "indented",
    "locations_of",
    "not_expected",
    "read_form",
    "read_model",
    "read_name",
]

_MAX_BYTES: Final = 4_096

_MAX_LOCATIONS: Final = 20
"""Locations of mistakes shown."""

_M = TypeVar("_M", bound=BaseModel)

_NOT_EXPECTED: Final = "The form is not filled in as expected."

MAX_DOCUMENT_BYTES: Final = 4 * 2**20
"""Bytes of a form with a document in it: a job has 1 MiB at most, and each byte may be escaped."""


async def read_form(
    request: Request, allowed: frozenset[str], max_bytes: int = _MAX_BYTES
) -> dict[str, str]:
    """Parse a form; raises `HttpError` if it is too large, or has an unknown or duplicate field."""
    return parse_query(await read_limited(request, max_bytes), allowed, max_bytes)


def read_name(form: Mapping[str, str], field: str) -> str:
    """Return the name of a database, a class or a tenant that a form has; raises `Invalid`."""
    if not re.fullmatch(NAME, form.get(field, "")):
        raise not_expected(field, "a small letter, then small letters, digits and _, 63 at most")
    return form[field]


def not_expected(field: str, expected: str) -> Invalid:
    """Return the error of a form whose field is not as expected."""
    return Invalid(_NOT_EXPECTED, locations=[Location(field, expected)])


def read_model(
    model: type[_M], content: Mapping[str, Any] | str, detail: str = _NOT_EXPECTED
) -> _M:
    """Validate a form, or a document in it, by its model.

    Args:
        model: The model.
        content: The fields of the form, or the text of a document in JSON.
        detail: The detail of the error.

    Raises:
        Invalid: The locations are names of fields, or pointers into the document (RFC 6901).
    """
    try:
        if isinstance(content, str):
            return model.model_validate_json(content)
        return model.model_validate(content)
    except ValidationError as error:
        root = ("",) if isinstance(content, str) else ()
        locations = locations_of(error.errors(include_url=False), root=root)
        raise Invalid(detail, locations=locations) from None


def locations_of(
    errors: Sequence[Any], skipped: int = 0, root: tuple[str, ...] = ()
) -> list[Location]:
    """Return the locations of the first mistakes that pydantic found.

    `root` replaces the first `skipped` steps of each path.
    """
    return [
        Location("/".join(map(str, (*root, *mistake["loc"][skipped:]))), str(mistake["msg"]))
        for mistake in errors[:_MAX_LOCATIONS]
    ]


def indented(value: Any) -> str:
    """Format JSON for people to edit."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
