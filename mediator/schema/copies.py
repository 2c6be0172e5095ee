"""Copies of values between fields: parsed, and checked against a schema."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NoReturn

from mediator.base.errors import Invalid, Location
from mediator.base.suggestions import did_you_mean
from mediator.schema.conversions import Conversion, conversion
from mediator.schema.errors import InvalidValue
from mediator.schema.ids import FIELD_NAME, NAME
from mediator.schema.tree import ClassSchema, Field, Schema
from mediator.schema.types import SCALARS, FieldType
from mediator.schema.values import SET_BY_SERVICE

__all__ = ["Copy", "FieldCopy", "field_copy", "parse_copy"]

_ID: Final = "id"
_NAME: Final = NAME.pattern
_FIELD: Final = FIELD_NAME.pattern
_FORM: Final = re.compile(
    rf"({_NAME})\.(?:({_FIELD})(?:=({_NAME})\.({_FIELD}))?\.)?({_FIELD}):({_FIELD})"
)
_FORM_ERROR: Final = (
    "is written as class.source:target, class.reference.source:target or"
    " class.field=class.field.source:target"
)


@dataclass(frozen=True, slots=True)
class Copy:
    """A requested copy: objects of a class get values of a field in `target`.

    Attributes:
        by: The field that leads to the object that has the source; None: it is the same object.
        to: The class of that object and the field that equals `by`; None: `by` is a reference.
    """

    class_name: str
    by: str | None
    to: tuple[str, str] | None
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class FieldCopy:
    """A copy that a schema allows.

    Attributes:
        copy: The copy as requested.
        source_class: The class of the objects that have the source.
        equal: The field of these objects that equals `copy.by`; None: their id does, or source and
            target are in the same object.
        conversion: From the type of the source to that of the target.
    """

    copy: Copy
    source_class: str
    equal: str | None
    source: Field
    target: Field
    conversion: Conversion

    @property
    def class_name(self) -> str:
        return self.copy.class_name

    @property
    def own_fields(self) -> tuple[str, ...]:
        """The fields to read of the target objects."""
        by = self.copy.by
        names = {self.target.name, self.source.name if by is None else by}
        return tuple(sorted(names))


def parse_copy(text: str, pointer: str = "copy") -> Copy:
    """Parse a copy.

    The form is ``class.source:target`` in one object, ``class.reference.source:target`` along a
    reference, or ``class.field=class.field.source:target`` from the object with an equal value.

    Raises:
        Invalid: It has none of these forms; `pointer` names the parameter.
    """
    match = _FORM.fullmatch(text)
    if match is None:
        raise _invalid(pointer, _FORM_ERROR)
    class_name, by, to_class, to_field, source, target = match.groups()
    to = None if to_class is None else (to_class, to_field)
    return Copy(class_name, by, to, source, target)


def field_copy(copy: Copy, schema: Schema, pointer: str = "copy") -> FieldCopy:
    """Resolve a copy against a schema.

    Raises:
        Invalid: It is impossible; `pointer` names the parameter.
    """
    try:
        return _resolve(copy, schema)
    except InvalidValue as error:
        raise _invalid(pointer, str(error)) from None


def _resolve(copy: Copy, schema: Schema) -> FieldCopy:
    target_class = _class(copy.class_name, schema)
    source_class, equal = target_class, None
    if copy.by is not None:
        source_class, equal = _source_of(copy.by, copy.to, target_class, schema)
    source, target = _field(source_class, copy.source), _field(target_class, copy.target)
    if copy.by is None and source is target:
        _refuse(f"{target_class.name}.{target.name} would be copied to itself")
    if target.updated:
        _refuse(f"{target_class.name}.{target.name} {SET_BY_SERVICE}")
    conversion_ = conversion(source, target)
    if conversion_ is None:
        _refuse(
            f"there is no conversion from {_type(source)} ({source_class.name}.{source.name})"
            f" to {_type(target)} ({target_class.name}.{target.name})"
        )
    return FieldCopy(copy, source_class.name, equal, source, target, conversion_)


def _source_of(
    by: str, to: tuple[str, str] | None, target_class: ClassSchema, schema: Schema
) -> tuple[ClassSchema, str | None]:
    """Return the class of the sources, and the field that finds them; None: the id."""
    key = _field(target_class, by)
    if to is None:
        if key.type is not FieldType.REFERENCE or key.to is None:
            _refuse(f"{target_class.name}.{by} is no reference")
        return _class(key.to, schema), None
    source_class = _class(to[0], schema)
    if to[1] == _ID:
        if key.type not in {FieldType.REFERENCE, FieldType.STRING}:
            _refuse(f"{target_class.name}.{by} holds no ids")
        return source_class, None
    equal = _field(source_class, to[1])
    if key.type is not equal.type or key.type not in SCALARS:
        _refuse(
            f"{target_class.name}.{by} and {source_class.name}.{equal.name} are not of one"
            " scalar type"
        )
    if not equal.index:
        _refuse(f"{source_class.name}.{equal.name} has no index, by which sources are found")
    return source_class, equal.name


def _class(name: str, schema: Schema) -> ClassSchema:
    classes: Mapping[str, ClassSchema] = schema.classes
    if name not in classes:
        _refuse(f"there is no class {name}{did_you_mean(name, classes)}")
    return classes[name]


def _field(class_: ClassSchema, name: str) -> Field:
    if name not in class_.fields:
        hint = did_you_mean(name, class_.fields)
        _refuse(f"there is no field {class_.name}.{name}{hint}")
    return class_.fields[name]


def _type(field: Field) -> str:
    return field.type.value if field.items is None else f"{field.type.value} of {field.items.value}"


def _refuse(reason: str) -> NoReturn:
    raise InvalidValue(reason)


def _invalid(pointer: str, reason: str) -> Invalid:
    return Invalid("Values cannot be copied.", locations=[Location(pointer, reason)])
