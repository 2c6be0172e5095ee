"""Shared parts of the pydantic models of documents, and their mistakes as JSON pointers."""

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

Names in parentheses, like union tags, are left out of JSON pointers."""

_MAX_MEMBERS: Final = 2 * MAX_ERRORS

document: Final = with_config(extra="forbid", allow_inf_nan=False)
"""Makes a dataclass the model of an object that has no members but its fields."""

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
"""An optional member: None if absent; an explicit null is refused."""

Unread = Annotated[_T, GetPydanticSchema(lambda _source, _handler: any_schema())]
"""A value that is not validated."""


def _scalar(_source: Any, _handler: Callable[[Any], Any]) -> CoreSchema:
    numbers = (int_schema(strict=True), float_schema(strict=True, allow_inf_nan=False))
    return union_schema(
        [*numbers, str_schema(strict=True)],
        custom_error_type="scalar",
        custom_error_message="must be a number or a string",
    )


Scalar = Annotated[_T, GetPydanticSchema(_scalar)]
"""A number or a string, decoded once its type is known."""


def keyed(max_members: int) -> BeforeValidator:
    """Bound the number of an object's members, and add its name to each."""

    def check(raw: Any) -> Any:
        if not isinstance(raw, dict):
            return raw
        if len(raw) > max_members:
            raise ValueError(f"must have at most {max_members} members")
        return {name: _with_name(name, member, token(str(name))) for name, member in raw.items()}

    return BeforeValidator(check)


def _with_name(name: str, member: Any, pointer: str = "") -> Any:
    if not isinstance(member, dict):
        return member
    if _KEY in member:  # it would be overwritten instead of refused
        refuse([Location(pointer + token(_KEY), "is not known here")])
    # That many members have enough unknown ones; the others are not validated.
    return {**dict(islice(member.items(), _MAX_MEMBERS)), _KEY: name}


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
"""A member of a large object: the thread yields before it, and stops once there are enough
mistakes, because pydantic describes all mistakes in one call into C."""


def refuse(mistakes: Iterable[Location]) -> None:
    """Raise the mistakes of a value, if any, from a validator; pointers are relative to the value.

    The type of such an error is the pointer.
    """
    errors = [
        InitErrorDetails(
            type=PydanticCustomError(
                mistake.pointer or "/", "{detail}", {"detail": mistake.detail}
            ),
            input=None,
        )
        for mistake in mistakes
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
    """Parse a document, given as parsed JSON, by its model.

    `mistakes` are already known. `name` is the name that the model gets, if it has one.

    Raises:
        Invalid: Of the class `kind`, with the JSON pointer of every mistake.
    """
    locations = list(mistakes)
    try:
        named_raw = raw if name is None else _with_name(name, raw)
        parsed = adapter.validate_python(named_raw, context=Counter())
    except ValidationError as error:
        details = error.errors(include_url=False)
        # If there are too many, report unknown members and mistakes near the root.
        details.sort(key=lambda detail: (detail["type"] not in UNKNOWN_MEMBER, len(detail["loc"])))
        locations += [_location(adapter, raw, detail) for detail in details[:MAX_ERRORS]]
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
    tags, path = ("(", "["), error["loc"][:-1] if kind in UNKNOWN_MEMBER else error["loc"]
    # Pointers leave out union tags, and steps that pydantic puts in brackets.
    steps = [step for step in path if not str(step).startswith(tags)]
    steps += error["loc"][len(path) :]
    hint = correction(adapter, raw, steps, error)
    if kind == "missing" and isinstance(steps[-1], int):
        kind, detail = "too_short", f"must have more than {steps.pop()} elements"
    _, should, rest = detail.partition(" should ")
    pointer = "".join(map(token, map(str, steps)))
    if len(kind) > 1 and kind.startswith("/"):
        pointer += kind
    return Location(pointer, (_DETAILS.get(kind) or (f"must {rest}" if should else detail)) + hint)


def json_schema_of(adapter: TypeAdapter[Any]) -> dict[str, Any]:
    """Return the JSON Schema of a model, without references."""
    schema = adapter.json_schema()
    definitions = schema.pop("$defs", {})

    def resolve(node: Any) -> Any:
        if isinstance(node, list):
            return [resolve(item) for item in node]
        if not isinstance(node, dict):
            return node
        definition = definitions[node["$ref"].rpartition("/")[2]] if "$ref" in node else {}
        # None stands for an absent member, which has no default in a document.
        return {
            name: resolve(member)
            for name, member in (definition | node).items()
            if name != "$ref" and member is not None
        }

    result: dict[str, Any] = resolve(schema)
    return result
