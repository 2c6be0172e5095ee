"""Documents as pydantic models: what their dataclasses share, and their mistakes with pointers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Annotated, Any, Final, TypeAlias, TypeVar

from pydantic import (
    BeforeValidator,
    Field,
    GetPydanticSchema,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    WrapValidator,
    with_config,
)
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError, PydanticOmit
from pydantic_core.core_schema import (
    CoreSchema,
    NullableSchema,
    any_schema,
    float_schema,
    int_schema,
    str_schema,
    union_schema,
)

from mediator.base.errors import Invalid, Location
from mediator.base.offload import throttle
from mediator.schema.corrections import UNKNOWN_MEMBER, correction
from mediator.schema.errors import invalid, token
from mediator.schema.ids import FIELD_NAME, NAME
from mediator.schema.limits import MAX_ERRORS

__all__ = [
    "FieldName",
    "Flag",
    "Key",
    "Name",
    "Number",
    "Omissible",
    "Positive",
    "Scalar",
    "Stepwise",
    "Unread",
    "document",
    "json_schema_of",
    "keyed",
    "parse_document",
    "refuse",
]

_T = TypeVar("_T")

_KEY: Final = "(name)"
"""The member by which a model gets the name that is its key in the document.

It is in parentheses, as the tags of unions are: what is so is no part of a pointer.
"""

_MOST_MEMBERS: Final = 2 * MAX_ERRORS

document: Final = with_config(extra="forbid", allow_inf_nan=False)
"""Makes a dataclass the model of an object with no other members than its fields."""

Key: TypeAlias = Annotated[str, Field(validation_alias=_KEY), SkipJsonSchema()]
Name: TypeAlias = Annotated[str, Field(pattern=f"^{NAME.pattern}$")]
FieldName: TypeAlias = Annotated[str, Field(pattern=f"^{FIELD_NAME.pattern}$")]
Flag: TypeAlias = Annotated[bool, Field(strict=True)]
Number: TypeAlias = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Positive: TypeAlias = Annotated[Number, Field(gt=0)]


def _not_null(source: Any, handler: Callable[[Any], Any]) -> CoreSchema:
    nullable: NullableSchema = handler(source)
    return nullable["schema"]


Omissible = Annotated[_T | None, GetPydanticSchema(_not_null)]
"""Something that may be left out, which None stands for, and may not be null."""

Unread = Annotated[_T, GetPydanticSchema(lambda _source, _handler: any_schema())]
"""Something that is taken as it is."""


def _scalar(_source: Any, _handler: Callable[[Any], Any]) -> CoreSchema:
    numbers = (int_schema(strict=True), float_schema(strict=True, allow_inf_nan=False))
    return union_schema(
        [*numbers, str_schema(strict=True)],
        custom_error_type="scalar",
        custom_error_message="must be a number or a string",
    )


Scalar = Annotated[_T, GetPydanticSchema(_scalar)]
"""A number or a string, which is decoded once the type that it has to be of is known."""


def keyed(most: int) -> BeforeValidator:
    """Bound an object, and give its members their names."""

    def bounded(raw: Any) -> Any:
        if not isinstance(raw, dict):
            return raw
        if len(raw) > most:
            raise ValueError(f"must have at most {most} members")
        return {name: _named(name, member, token(str(name))) for name, member in raw.items()}

    return BeforeValidator(bounded)


def _named(name: str, member: Any, pointer: str = "") -> Any:
    if not isinstance(member, dict):
        return member
    if _KEY in member:  # it would be overwritten, and so never be refused
        refuse([Location(pointer + token(_KEY), "is not known here")])
    # Of so many members enough are unknown; no more of them are looked at.
    return {**dict(islice(member.items(), _MOST_MEMBERS)), _KEY: name}


def _step(raw: Any, parse: Callable[[Any], _T], info: ValidationInfo) -> _T:
    throttle()
    counts: Any = info.context
    if counts["mistakes"] >= MAX_ERRORS:
        raise PydanticOmit
    try:
        return parse(raw)
    except ValidationError as error:
        counts["mistakes"] += error.error_count()
        raise


Stepwise = Annotated[_T, WrapValidator(_step)]
"""A member of a large object: a thread gives way before it, and stops where there are enough
mistakes, because pydantic describes all that it has found in one call into C."""


def refuse(mistakes: Iterable[Location]) -> None:
    """Raise the mistakes of a value, if there are any: in validators, with pointers from there.

    The type of such an error is the pointer.
    """
    errors = [
        InitErrorDetails(
            type=PydanticCustomError(each.pointer or "/", "{detail}", {"detail": each.detail}),
            input=None,
        )
        for each in mistakes
    ]
    if errors:
        raise ValidationError.from_exception_data("document", errors)


def parse_document(
    adapter: TypeAdapter[_T],
    raw: Any,
    mistakes: Iterable[Location] = (),
    kind: type[Invalid] = Invalid,
    *,
    name: str | None = None,
) -> _T:
    """Return a document, as parsed JSON, as its model.

    `mistakes` are others that are known of it. `name` is the name that the model gets, if it has
    one.

    Raises:
        Invalid: Of the class `kind`, with the JSON pointer of every mistake.
    """
    locations = list(mistakes)
    try:
        named = raw if name is None else _named(name, raw)
        parsed = adapter.validate_python(named, context=Counter())
    except ValidationError as error:
        details = error.errors(include_url=False)
        # If there are too many, unknown members and what is near the root are named.
        details.sort(key=lambda each: (each["type"] not in UNKNOWN_MEMBER, len(each["loc"])))
        locations += [_location(adapter, raw, each) for each in details[:MAX_ERRORS]]
    if locations:
        raise invalid(locations, kind)
    return parsed


_DETAILS: Final = {
    **dict.fromkeys(UNKNOWN_MEMBER, "is not known here"),
    **dict.fromkeys(("dataclass_type", "dict_type", "mapping_type"), "must be an object"),
    "missing": "is required",
    "tuple_type": "must be an array",
}


def _location(adapter: TypeAdapter[Any], raw: Any, error: ErrorDetails) -> Location:
    kind, detail = error["type"], error["msg"].removeprefix("Value error, ")
    tags, known = ("(", "["), error["loc"][:-1] if kind in UNKNOWN_MEMBER else error["loc"]
    # Tags of unions, and what pydantic has in brackets, are no part of a pointer.
    steps = [step for step in known if not str(step).startswith(tags)]
    steps += error["loc"][len(known) :]
    meant = correction(adapter, raw, steps, error)
    if kind == "missing" and isinstance(steps[-1], int):
        kind, detail = "too_short", f"must have more than {steps.pop()} elements"
    _, should, rest = detail.partition(" should ")
    pointer = "".join(map(token, map(str, steps)))
    if len(kind) > 1 and kind.startswith("/"):
        pointer += kind
    return Location(pointer, (_DETAILS.get(kind) or (f"must {rest}" if should else detail)) + meant)


def json_schema_of(adapter: TypeAdapter[Any]) -> dict[str, Any]:
    """Return the JSON Schema of a model, without references."""
    schema = adapter.json_schema()
    definitions = schema.pop("$defs", {})

    def resolved(node: Any) -> Any:
        if isinstance(node, list):
            return [resolved(each) for each in node]
        if not isinstance(node, dict):
            return node
        inner = definitions[node["$ref"].rpartition("/")[2]] if "$ref" in node else {}
        # None stands for what is left out, which has no default in a document.
        return {
            name: resolved(each)
            for name, each in (inner | node).items()
            if name != "$ref" and each is not None
        }

    result: dict[str, Any] = resolved(schema)
    return result
