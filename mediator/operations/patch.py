"""Parsing a PATCH, in any of its three formats, to field changes or to a computation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from mediator.base.errors import Location
from mediator.base.suggestions import did_you_mean
from mediator.model.operators import APPLICABLE, Operator, OperatorCall
from mediator.operations.json_patch import Compute, parse_json_patch
from mediator.schema.documents import merge_patch
from mediator.schema.errors import InvalidValue, invalid, locations_below, token
from mediator.schema.limits import DOCUMENT_DEPTH, MAX_ERRORS
from mediator.schema.scalars import SCALAR_DECODERS
from mediator.schema.tree import ClassSchema, Field
from mediator.schema.types import FieldType, Value, Values
from mediator.schema.values import SET_BY_SERVICE, Codec, map_key

__all__ = ["Compute", "FieldChanges", "parse_json_patch", "parse_merge_patch", "parse_update"]

_Argument: TypeAlias = Callable[[Codec, Field, Any], Any]


class FieldChanges(NamedTuple):
    values: Values
    unset: tuple[str, ...]
    operators: tuple[OperatorCall, ...]


def parse_update(schema: ClassSchema, codec: Codec, body: Any, pointer: str = "") -> FieldChanges:
    """Parse an operator patch such as `{"hits": {"inc": 1}}`; raises `Invalid` with all errors."""
    values: Values = {}
    unset: list[str] = []
    operators: list[OperatorCall] = []
    locations: list[Location] = []
    for name, raw in _members(body, pointer):
        try:
            operator, argument = _call(schema, codec, name, raw)
        except InvalidValue as error:
            locations += locations_below(pointer + token(name), error)
            if len(locations) >= MAX_ERRORS:
                break
            continue
        if operator is Operator.SET:
            values[name] = argument
        elif operator is Operator.UNSET:
            unset.append(name)
        else:
            operators.append(OperatorCall(name, operator, argument))
    if locations:
        raise invalid(locations)
    return FieldChanges(values, tuple(unset), tuple(operators))


def parse_merge_patch(
    schema: ClassSchema, codec: Codec, body: Any, pointer: str = ""
) -> FieldChanges | Compute:
    """Parse a Merge Patch (RFC 7396) of an object.

    Returns:
        Field changes that need no read; or, if members are merged into an existing document or map,
        a function from the object's JSON to its new JSON, still to be decoded.

    Raises:
        Invalid: With the location of every error detectable without the object.
    """
    values: Values = {}
    unset: list[str] = []
    locations: list[Location] = []
    merges = False
    for name, raw in _members(body, pointer):
        try:
            field = _field(schema, name)
            if raw is None:
                _check_removable(codec, field, raw)
                unset.append(name)
            elif type(raw) is dict and field.type in _MERGED:
                _check_depth(raw)
                merges = True
            else:
                values[name] = codec.decoders[name](raw)
        except InvalidValue as error:
            locations += locations_below(pointer + token(name), error)
            if len(locations) >= MAX_ERRORS:
                break
    if locations:
        raise invalid(locations)
    return partial(merge_patch, patch=body) if merges else FieldChanges(values, tuple(unset), ())


def _members(body: Any, pointer: str) -> Iterable[tuple[str, Any]]:
    if type(body) is not dict:
        raise invalid([Location(pointer, "must be a JSON object")])
    return body.items()


def _field(schema: ClassSchema, name: str) -> Field:
    field = schema.fields.get(name)
    if field is None:
        raise InvalidValue(f"is no field of this class{did_you_mean(name, schema.fields)}")
    if field.updated:
        raise InvalidValue(SET_BY_SERVICE)
    return field


def _call(schema: ClassSchema, codec: Codec, name: str, raw: Any) -> tuple[Operator, Any]:
    field = _field(schema, name)
    if type(raw) is not dict or len(raw) != 1:
        raise InvalidValue("must be an object with exactly one operator")
    [(operator_name, argument)] = raw.items()
    usage = _USAGES[field.type].get(operator_name)
    if usage is None:
        choice = ", ".join(_USAGES[field.type])
        suggestion = did_you_mean(operator_name, _USAGES[field.type])
        detail = f"is not an operator for type {field.type}, which has {choice}{suggestion}"
        raise InvalidValue(locations=[Location(token(operator_name), detail)])
    operator, decode = usage
    if name in codec.unique and operator not in _STATE_INDEPENDENT:
        detail = "is not an operator for a unique field: set its value"
        raise InvalidValue(locations=[Location(token(operator_name), detail)])
    try:
        return operator, decode(codec, field, argument)
    except InvalidValue as error:
        raise InvalidValue(locations=locations_below(token(operator_name), error)) from None


def _value(codec: Codec, field: Field, raw: Any) -> Value:
    value: Value = codec.decoders[field.name](raw)
    return value


def _operand(_codec: Codec, field: Field, raw: Any) -> Value:
    """Decode an operand; constraints apply only to the result."""
    value: Value = SCALAR_DECODERS[field.type](raw)
    return value


def _value_or_null(codec: Codec, field: Field, raw: Any) -> Value:
    return None if raw is None and field.name in codec.nullable else _value(codec, field, raw)


def _item(codec: Codec, field: Field, raw: Any) -> Any:
    return codec.items[field.name](raw)


def _item_or_key(codec: Codec, field: Field, raw: Any) -> Any:
    return map_key(raw) if field.type is FieldType.MAP else _item(codec, field, raw)


def _entries(codec: Codec, field: Field, raw: Any) -> Value:
    # Without keys it would turn a missing map into an empty one, which `put` must not do.
    if raw == {}:
        raise InvalidValue("must have at least one key")
    return _value(codec, field, raw)


def _true(_codec: Codec, _field: Field, raw: Any) -> Value:
    if raw is not True:
        raise InvalidValue("must be true")
    return True


def _unset(codec: Codec, field: Field, raw: Any) -> Value:
    _check_removable(codec, field, raw)
    return _true(codec, field, raw)


def _check_removable(codec: Codec, field: Field, _raw: Any) -> None:
    if field.name not in codec.nullable:
        raise InvalidValue("must not be removed, because the field is required")


_ARGUMENTS: Final[Mapping[Operator, _Argument]] = {
    Operator.INC: _operand,
    Operator.MUL: _operand,
    Operator.MIN: _operand,
    Operator.MAX: _operand,
    Operator.SET: _value_or_null,
    Operator.UNSET: _unset,
    Operator.PUSH: _item,
    Operator.PUSH_FRONT: _item,
    Operator.POP: _true,
    Operator.SHIFT: _true,
    Operator.REMOVE: _item_or_key,
    Operator.ADD_TO_SET: _item,
    Operator.PUT: _entries,
    Operator.NOW: _true,
    Operator.BIT_AND: _operand,
    Operator.BIT_OR: _operand,
    Operator.BIT_XOR: _operand,
}
_USAGES: Final[Mapping[FieldType, Mapping[str, tuple[Operator, _Argument]]]] = {
    type_: {
        operator.value: (operator, decode)
        for operator, decode in _ARGUMENTS.items()
        if type_ in APPLICABLE[operator]
    }
    for type_ in FieldType
}
_STATE_INDEPENDENT: Final = frozenset({Operator.SET, Operator.UNSET})
"""Operators whose result does not depend on what is stored."""

_MERGED: Final = frozenset({FieldType.DOCUMENT, FieldType.MAP})


def _check_depth(patch: dict[str, Any], depth: int = 1) -> None:
    if depth > DOCUMENT_DEPTH:
        raise InvalidValue(f"must not be nested deeper than {DOCUMENT_DEPTH}")
    for member in patch.values():
        if type(member) is dict:
            _check_depth(member, depth + 1)
