"""Pydantic models at the edges of the API: their errors are problems with pointers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Final, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from app.http.paths import parse_query
from mediator.base.errors import Invalid, Location
from mediator.schema.corrections import correction

__all__ = [
    "STRICT",
    "Body",
    "Parameters",
    "ResponseModel",
    "WholeNumber",
    "parse_body",
    "parse_parameters",
]

_MOST_LOCATIONS: Final = 100
_DIGITS: Final = 16
_UNION_ERRORS: Final = frozenset({"union_tag_invalid", "union_tag_not_found"})
_TAG: Final = "op"
"""The member by which the members of all unions of the API differ."""

_T = TypeVar("_T")


STRICT: Final = ConfigDict(strict=True, extra="forbid", frozen=True)
"""Nothing is converted, and unknown members are refused."""


class Body(BaseModel):
    """A body of a request, or a part of one; see `STRICT`."""

    model_config = STRICT


class Parameters(BaseModel):
    """The parameters of a query; their names are the aliases of the fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ResponseModel(BaseModel):
    """A body of a response, as it is documented; later versions may add members."""


def _digits(text: Any) -> Any:
    # int() would also take signs, spaces, underscores and digits of other alphabets.
    plain = not isinstance(text, str) or (text.isascii() and text.isdigit())
    if not plain or (isinstance(text, str) and len(text) > _DIGITS):
        raise ValueError("a whole number is expected")
    return text


WholeNumber = Annotated[int, BeforeValidator(_digits)]
"""A number in a query, written with decimal digits."""


def parse_body(adapter: TypeAdapter[_T], body: Any, detail: str) -> _T:
    """Return a JSON value as its model.

    Raises:
        Invalid: With this detail; the locations are JSON pointers (RFC 6901).
    """
    try:
        # `TypeAdapter.validate_python` adds a layer that takes as long as the check itself.
        value: _T = adapter.validator.validate_python(body)
    except ValidationError as error:
        locations = [_location(adapter, body, each) for each in _details(error)]
        raise Invalid(detail, locations=locations) from None
    return value


_P = TypeVar("_P", bound=Parameters)


def parse_parameters(model: type[_P], query: bytes) -> _P:
    """Return the parameters of a query as their model.

    Raises:
        HttpError: The query is malformed, or has a parameter that the model has not.
        Invalid: A parameter has a value that it cannot have; the locations are its name.
    """
    names = frozenset(field.alias or name for name, field in model.model_fields.items())
    parameters = parse_query(query, names)
    try:
        return model.model_validate(parameters)
    except ValidationError as error:
        locations = [Location(str(each["loc"][0]), _reason(each)) for each in _details(error)]
        raise Invalid("A parameter has a value that it cannot have.", locations=locations) from None


def _details(error: ValidationError) -> Sequence[ErrorDetails]:
    return error.errors(include_url=False)[:_MOST_LOCATIONS]


def _reason(error: ErrorDetails) -> str:
    return error["msg"].removeprefix("Value error, ")


def _location(adapter: TypeAdapter[Any], body: Any, error: ErrorDetails) -> Location:
    """Return where an error is, and what; pydantic also names the member of a union it is in."""
    steps = list(_steps(body, error["loc"]))
    if error["type"] in _UNION_ERRORS:
        steps.append(_TAG)
    pointer = "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)
    return Location(pointer, _reason(error) + correction(adapter, body, steps, error))


def _steps(body: Any, location: Iterable[str | int]) -> Iterable[str | int]:
    value, entered = body, False
    for part in location:
        if not entered and isinstance(value, dict) and part == value.get(_TAG):
            entered = True
            continue
        yield part
        entered = False
        value = _member(value, part)


def _member(value: Any, part: str | int) -> Any:
    if isinstance(value, dict):
        return value.get(part)
    if isinstance(value, list) and isinstance(part, int) and part < len(value):
        return value[part]
    return None
