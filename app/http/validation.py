"""Pydantic models of bodies and queries; their errors become problems with JSON pointers."""

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

_MAX_LOCATIONS: Final = 100
_MAX_DIGITS: Final = 16
_UNION_ERRORS: Final = frozenset({"union_tag_invalid", "union_tag_not_found"})
_TAG: Final = "op"
"""The discriminator of all tagged unions of the API."""

_T = TypeVar("_T")


STRICT: Final = ConfigDict(strict=True, extra="forbid", frozen=True)
"""No type conversion, and unknown members are refused."""


class Body(BaseModel):
    """A body of a request, or a member of one; see `STRICT`."""

    model_config = STRICT


class Parameters(BaseModel):
    """The parameters of a query, named by the aliases of the fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ResponseModel(BaseModel):
    """A body of a response, as it is documented; later versions may add members."""


def _digits(text: Any) -> Any:
    # int() also accepts signs, spaces, underscores and digits of other scripts.
    plain = not isinstance(text, str) or (text.isascii() and text.isdigit())
    if not plain or (isinstance(text, str) and len(text) > _MAX_DIGITS):
        raise ValueError("a whole number is expected")
    return text


WholeNumber = Annotated[int, BeforeValidator(_digits)]
"""A number in a query, in decimal digits."""


def parse_body(adapter: TypeAdapter[_T], body: Any, detail: str) -> _T:
    """Validate a JSON value against its model.

    Raises:
        Invalid: With `detail`; the locations are JSON pointers (RFC 6901).
    """
    try:
        # `TypeAdapter.validate_python` adds a layer that takes as long as the validation.
        value: _T = adapter.validator.validate_python(body)
    except ValidationError as error:
        locations = [_location(adapter, body, item) for item in _details(error)]
        raise Invalid(detail, locations=locations) from None
    return value


_P = TypeVar("_P", bound=Parameters)


def parse_parameters(model: type[_P], query: bytes) -> _P:
    """Validate the parameters of a query against their model.

    Raises:
        HttpError: The query is malformed, or has an unknown parameter.
        Invalid: The value of a parameter is invalid; the locations are the names of parameters.
    """
    names = frozenset(field.alias or name for name, field in model.model_fields.items())
    parameters = parse_query(query, names)
    try:
        return model.model_validate(parameters)
    except ValidationError as error:
        locations = [Location(str(item["loc"][0]), _reason(item)) for item in _details(error)]
        raise Invalid("A parameter has a value that it cannot have.", locations=locations) from None


def _details(error: ValidationError) -> Sequence[ErrorDetails]:
    return error.errors(include_url=False)[:_MAX_LOCATIONS]


def _reason(error: ErrorDetails) -> str:
    return error["msg"].removeprefix("Value error, ")


def _location(adapter: TypeAdapter[Any], body: Any, error: ErrorDetails) -> Location:
    """Translate an error of pydantic, whose location also names members of unions."""
    steps = list(_steps(body, error["loc"]))
    if error["type"] in _UNION_ERRORS:
        steps.append(_TAG)
    pointer = "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)
    return Location(pointer, _reason(error) + correction(adapter, body, steps, error))


def _steps(body: Any, location: Iterable[str | int]) -> Iterable[str | int]:
    value, in_union = body, False
    for step in location:
        if not in_union and isinstance(value, dict) and step == value.get(_TAG):
            in_union = True
            continue
        yield step
        in_union = False
        value = _member(value, step)


def _member(value: Any, step: str | int) -> Any:
    if isinstance(value, dict):
        return value.get(step)
    if isinstance(value, list) and isinstance(step, int) and step < len(value):
        return value[step]
    return None
