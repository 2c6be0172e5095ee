"""Parser of schemas in JSON, which reports the location of every mistake."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from pydantic import TypeAdapter

from mediator.base.errors import Location, SchemaInvalid
from mediator.base.offload import throttle
from mediator.base.suggestions import did_you_mean
from mediator.schema.batching import mistakes_of_batching
from mediator.schema.constraints import searcher
from mediator.schema.errors import InvalidValue, invalid, locations_below
from mediator.schema.foreign_keys import mistakes_of_number, mistakes_of_on_delete
from mediator.schema.ids import NAME
from mediator.schema.indexed_paths import mistakes_of_indexed_paths
from mediator.schema.limits import INDEXED_ELEMENTS, MAX_ERRORS, UNIQUE_CONSTRAINTS
from mediator.schema.scalars import SCALAR_DECODERS, text_error
from mediator.schema.tree import (
    MAIN_GROUP,
    MISSING,
    SCRATCH_DATABASE,
    ClassSchema,
    Field,
    Generated,
    MissingType,
    OnDelete,
    Schema,
)
from mediator.schema.types import ARRAYS, SCALARS, FieldType
from mediator.schema.unique import UNIQUE_TYPES
from mediator.schema.validation import parse_document
from mediator.schema.values import decoder

__all__ = ["RESERVED_CLASSES", "SCHEMA", "parse_schema"]

RESERVED_CLASSES: Final = frozenset(
    {"batch", "transactions", "sketch", "changes", "jobs", "streams", "flows", "views", "query"}
)
"""Names of database-level routes, reserved from classes (docs/schema.md, "A class")."""

SCHEMA: Final = TypeAdapter(Schema)
"""The model of schema documents."""

_ITEMS: Final[Mapping[FieldType, frozenset[FieldType]]] = {
    FieldType.SET: SCALARS,
    FieldType.LIST: SCALARS | {FieldType.DOCUMENT},
    FieldType.MAP: SCALARS - {FieldType.REFERENCE} | {FieldType.DOCUMENT},
}
_NUMBERS: Final = frozenset({FieldType.INTEGER, FieldType.FLOAT, FieldType.DECIMAL})
_TYPES_OF: Final[Mapping[str, Collection[FieldType]]] = {
    "items": _ITEMS.keys(),
    "max_length": {*_ITEMS, FieldType.STRING, FieldType.BINARY},
    "min_length": {FieldType.STRING, FieldType.BINARY},
    "minimum": _NUMBERS,
    "maximum": _NUMBERS,
    "enum": {FieldType.STRING},
    "pattern": {FieldType.STRING},
}
"""The types for which these members have a meaning."""

_NOT_COMPARED: Final = "values of type {} are not compared exactly"
_NO_ORDER: Final = "type {} has no order to index"

_GENERATED: Final = {
    (FieldType.TIMESTAMP, "now"): Generated.NOW,
    (FieldType.STRING, "uuid"): Generated.UUID,
}
"""Generated defaults, by type and text; the text is not itself a value of the field."""


def parse_schema(database: str, document: Any) -> Schema:
    """Parse the schema of a named database from parsed JSON.

    Omitted members get their defaults. The main group is unnamed, and all numbers that measure
    something are floats.

    Raises:
        SchemaInvalid: With the JSON pointer of every mistake. Contradictions between members are
            reported once each member is valid.
    """
    mistakes: list[Location] = []
    if not NAME.fullmatch(database):
        mistakes.append(Location("database", f"must be named like {NAME.pattern}"))
    if database == SCRATCH_DATABASE:
        mistakes.append(Location("database", f"{database} is a reserved name"))
    schema = parse_document(SCHEMA, document, mistakes, SchemaInvalid, name=database)
    classes = {
        name: _class(class_, schema.classes, mistakes) for name, class_ in schema.classes.items()
    }
    mistakes += islice(mistakes_of_number(classes.values()), MAX_ERRORS)
    mistakes += islice(mistakes_of_batching(schema), MAX_ERRORS)
    if mistakes:
        raise invalid(mistakes, SchemaInvalid)
    return replace(schema, classes=classes)


def _class(
    class_: ClassSchema, classes: Mapping[str, ClassSchema], mistakes: list[Location]
) -> ClassSchema:
    at = f"/classes/{class_.name}"
    if class_.name in RESERVED_CLASSES:
        mistakes.append(Location(at, f"{class_.name} is a reserved name"))
    fields = {}
    for name, field in class_.fields.items():
        throttle()
        if len(mistakes) >= MAX_ERRORS:
            break
        location = f"{at}/fields/{name}"
        mistakes += _mistakes(field, classes, location)
        fields[name] = _normalise_field(field, location, mistakes)
    normalised = replace(class_, fields=fields)
    mistakes += _mistakes_of_owner(normalised, at)
    mistakes += _mistakes_of_updated(normalised, at)
    mistakes += _mistakes_of_unique(normalised, at)
    mistakes += _mistakes_of_indexes(normalised, at)
    return normalised


def _mistakes(field: Field, classes: Mapping[str, ClassSchema], at: str) -> Iterator[Location]:
    """Yield contradictions of a field's members with its name and its type."""
    if field.name == "id":
        yield Location(at, "id is a reserved name")
    for member, types in _TYPES_OF.items():
        if getattr(field, member) is not None and field.type not in types:
            yield Location(f"{at}/{member}", f"has no meaning for type {field.type}")
    if field.type in _ITEMS and field.items not in _ITEMS[field.type]:
        allowed = ", ".join(sorted(_ITEMS[field.type]))
        yield Location(f"{at}/items", f"must be one of {allowed} for type {field.type}")
    if error := _mistake_in_reference(field, classes):
        yield Location(f"{at}/to", error)
    yield from mistakes_of_on_delete(field, classes, at)
    yield from mistakes_of_indexed_paths(field, f"{at}/indexed_paths")
    yield from _mistakes_of_flags(field, at)
    yield from _mistakes_of_lengths_and_enum(field, at)


def _mistakes_of_flags(field: Field, at: str) -> Iterator[Location]:
    yield from _mistakes_of_index(field, at)
    if field.updated and field.type is not FieldType.TIMESTAMP:
        yield Location(f"{at}/updated", f"has no meaning for type {field.type}")
    if field.updated and field.default is not MISSING:
        yield Location(f"{at}/default", "has no meaning beside updated")
    if field.unique and field.updated:
        yield Location(f"{at}/unique", "has no meaning beside updated")
    elif field.unique and field.type not in UNIQUE_TYPES:
        yield Location(f"{at}/unique", _NOT_COMPARED.format(field.type))


def _mistakes_of_index(field: Field, at: str) -> Iterator[Location]:
    if not field.index or field.type in SCALARS:
        return
    if field.type not in ARRAYS:
        yield Location(f"{at}/index", _NO_ORDER.format(field.type))
    elif field.items is FieldType.DOCUMENT:
        yield Location(f"{at}/index", _NO_ORDER.format(field.items))
    elif field.max_length is None:
        detail = "needs a max_length of {} at most, because each element has an index entry"
        yield Location(f"{at}/index", detail.format(INDEXED_ELEMENTS))
    elif field.max_length > INDEXED_ELEMENTS:
        detail = f"must be {INDEXED_ELEMENTS} at most, because each element has an index entry"
        yield Location(f"{at}/max_length", detail)


def _mistake_in_reference(field: Field, classes: Collection[str]) -> str | None:
    if FieldType.REFERENCE not in {field.type, field.items}:
        return None if field.to is None else f"has no meaning for type {field.type}"
    if field.to is None:
        return "is required for a reference"
    hint = did_you_mean(field.to, classes)
    return None if field.to in classes else f"there is no class {field.to}{hint}"


def _mistakes_of_lengths_and_enum(field: Field, at: str) -> Iterator[Location]:
    if field.min_length and field.max_length and field.min_length > field.max_length:
        yield Location(f"{at}/min_length", "must not be above max_length")
    for i, member in enumerate(field.enum or ()):
        if error := text_error(member):
            yield Location(f"{at}/enum/{i}", error)
        elif member in (field.enum or ())[:i]:
            yield Location(f"{at}/enum/{i}", "must not be there twice")


def _decode_bounds(field: Field, at: str, mistakes: list[Location]) -> Field:
    """Decode the bounds of a field, which are values of its type."""
    if not field.is_bounded:
        return field
    bounds: dict[str, Any] = {}
    decode = SCALAR_DECODERS[field.type]
    for member in ("minimum", "maximum"):
        raw = getattr(field, member)
        try:
            bounds[member] = None if raw is None else decode(raw)
        except InvalidValue as error:
            mistakes += locations_below(f"{at}/{member}", error)
            return replace(field, minimum=None, maximum=None)
    low, high = bounds["minimum"], bounds["maximum"]
    if low is not None and high is not None and low > high:
        mistakes.append(Location(f"{at}/minimum", "must not be above maximum"))
    return replace(field, **bounds)


def _drop_invalid_pattern(field: Field, at: str, mistakes: list[Location]) -> Field:
    """Drop an invalid pattern."""
    try:
        if field.pattern is not None:
            searcher(field.pattern)
    except ValueError as error:
        detail = f"must be a regular expression of RE2: {error}"
        mistakes.append(Location(f"{at}/pattern", detail))
        return replace(field, pattern=None)
    return field


def _normalise_field(field: Field, at: str, mistakes: list[Location]) -> Field:
    """Decode the bounds and the default of a field, and leave the main group unnamed.

    Members that have no meaning for its type are dropped: they are reported as mistakes already.
    """
    meaningless: dict[str, Any] = {
        m: None for m, types in _TYPES_OF.items() if field.type not in types
    }
    field = replace(
        field,
        group=None if field.group == MAIN_GROUP else field.group,
        on_delete=None if field.on_delete is OnDelete.IGNORE else field.on_delete,
        **meaningless,
    )
    field = _drop_invalid_pattern(_decode_bounds(field, at, mistakes), at, mistakes)
    default = field.default
    if isinstance(default, str) and (generated := _GENERATED.get((field.type, default))):
        return replace(field, default=generated)
    if default is None and field.required:
        detail = "must not be null, because the field is required"
        mistakes.append(Location(f"{at}/default", detail))
    undecodable = field.type in _ITEMS and field.items not in _ITEMS[field.type]
    if default is None or isinstance(default, MissingType) or undecodable:
        return field
    try:
        return replace(field, default=decoder(field)(default))
    except InvalidValue as error:
        mistakes += locations_below(f"{at}/default", error)
        return field


def _mistakes_of_owner(class_: ClassSchema, at: str) -> Iterator[Location]:
    """Yield the reasons why `owner_field` cannot name the owner of every object."""
    if class_.owner_field is None:
        return
    field = class_.fields.get(class_.owner_field)
    if field is None:
        hint = did_you_mean(class_.owner_field, class_.fields)
        yield Location(f"{at}/owner_field", f"is no field of this class{hint}")
    else:
        requirements = (
            ("type", field.type is FieldType.STRING, "string, because objects are owned by it"),
            ("required", field.required, "true, because objects are owned by it"),
            ("index", field.index, "true, because every query filters by it"),
            ("group", not field.group, "main, because it comes and goes with the object"),
        )
        for member, is_met, demand in requirements:
            if not is_met:
                yield Location(f"{at}/fields/{field.name}/{member}", f"must be {demand}")
    if class_.cache.visibility != "none":
        # Caches do not check owners, and the sketch reveals changes of all objects.
        yield Location(f"{at}/cache/visibility", "must be none, because of owner_field")


def _mistakes_of_updated(class_: ClassSchema, at: str) -> Iterator[Location]:
    """Yield all `updated` fields but the first: their values would be equal."""
    first, *duplicates = [name for name, field in class_.fields.items() if field.updated] or [""]
    for name in duplicates:
        yield Location(f"{at}/fields/{name}/updated", f"would be equal to {first}")


def _mistakes_of_unique(class_: ClassSchema, at: str) -> Iterator[Location]:
    """Yield the reasons why the constraints of `unique` cannot be decided in one place."""
    if len(class_.unique_constraints) > UNIQUE_CONSTRAINTS:
        yield Location(
            f"{at}/unique", f"a class has at most {UNIQUE_CONSTRAINTS} unique constraints"
        )
    constraints: set[frozenset[str]] = {
        frozenset({n}) for n, f in class_.fields.items() if f.unique
    }
    for i, names in enumerate(class_.unique):
        location = f"{at}/unique/{i}"
        if frozenset(names) in constraints:
            yield Location(location, "is there already")
        constraints.add(frozenset(names))
        yield from _mistakes_of_members(class_, names, location, _mistake_in_unique)


def _mistakes_of_indexes(class_: ClassSchema, at: str) -> Iterator[Location]:
    """Yield the reasons why compound indexes cannot be maintained in one place."""
    for i, index in enumerate(class_.indexes):
        location = f"{at}/indexes/{i}"
        if index in class_.indexes[:i]:
            yield Location(location, "is there already")
        yield from _mistakes_of_members(
            class_, index.fields, f"{location}/fields", _mistake_in_index
        )


def _mistakes_of_members(
    class_: ClassSchema,
    names: Sequence[str],
    at: str,
    mistake_in: Callable[[Field], str | None],
) -> Iterator[Location]:
    """Yield the reasons why fields cannot be combined."""
    for i, name in enumerate(names):
        field = class_.fields.get(name)
        if field is None:
            hint = did_you_mean(name, class_.fields)
            yield Location(f"{at}/{i}", f"is no field of this class{hint}")
        elif name in names[:i]:
            yield Location(f"{at}/{i}", "must not be there twice")
        elif mistake := mistake_in(field):
            yield Location(f"{at}/{i}", mistake)
    groups = {f.group for n in names if (f := class_.fields.get(n)) is not None}
    if len(groups) > 1:
        yield Location(at, "must be of fields of one cache group, which one system holds")


def _mistake_in_unique(field: Field) -> str | None:
    if field.type not in UNIQUE_TYPES:
        return _NOT_COMPARED.format(field.type)
    return "is the time of the last write, which the service sets" if field.updated else None


def _mistake_in_index(field: Field) -> str | None:
    return None if field.type in SCALARS else _NO_ORDER.format(field.type)
