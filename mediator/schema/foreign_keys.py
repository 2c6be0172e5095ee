"""Foreign keys: references whose objects must exist, and their actions on a deletion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from mediator.base.errors import Location
from mediator.schema.limits import FOREIGN_KEY_ELEMENTS, FOREIGN_KEYS_TO_CLASS
from mediator.schema.tree import ClassSchema, Field, OnDelete, Schema
from mediator.schema.types import ARRAYS, FieldType, Value

__all__ = [
    "ForeignKey",
    "added_foreign_keys",
    "foreign_keys_of",
    "mistakes_of_number",
    "mistakes_of_on_delete",
    "references_of",
]


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """A field of `class_name` that refers to objects of the class `to`.

    `is_array`: it is a list or a set of references.
    """

    class_name: str
    field: str
    to: str
    on_delete: OnDelete
    is_array: bool = False

    def targets_of(self, value: Value) -> list[str]:
        """Return the ids to which a value of the field refers, each once."""
        return list(dict.fromkeys(references_of(value)))


def references_of(value: Value) -> list[str]:
    """Return the ids in the value of a reference, or of a list or set of references."""
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, str)]


def foreign_keys_of(class_: ClassSchema) -> tuple[ForeignKey, ...]:
    return tuple(
        ForeignKey(class_.name, name, field.to, field.on_delete, field.type in ARRAYS)
        for name, field in class_.fields.items()
        if field.on_delete is not None and field.to is not None
    )


def added_foreign_keys(before: Schema, after: Schema) -> tuple[ForeignKey, ...]:
    """Return the foreign keys that a schema change adds; a changed action is not an addition."""
    former = {(k.class_name, k.field, k.to) for k in _all_of(before)}
    return tuple(k for k in _all_of(after) if (k.class_name, k.field, k.to) not in former)


def _all_of(schema: Schema) -> Iterator[ForeignKey]:
    return (key for class_ in schema.classes.values() for key in foreign_keys_of(class_))


def mistakes_of_number(classes: Iterable[ClassSchema]) -> Iterator[Location]:
    """Yield the foreign keys in excess of the limit for the class to which they refer."""
    counts: Counter[str] = Counter()
    for key in (key for class_ in classes for key in foreign_keys_of(class_)):
        counts[key.to] += 1
        if counts[key.to] > FOREIGN_KEYS_TO_CLASS:
            at = f"/classes/{key.class_name}/fields/{key.field}/on_delete"
            yield Location(at, f"at most {FOREIGN_KEYS_TO_CLASS} foreign keys refer to one class")


def mistakes_of_on_delete(
    field: Field, classes: Mapping[str, ClassSchema], at: str
) -> Iterator[Location]:
    """Yield the reasons why a reference cannot be a foreign key."""
    action, location = field.on_delete, f"{at}/on_delete"
    if action is None:
        return
    if FieldType.REFERENCE not in {field.type, field.items}:
        yield Location(location, f"has no meaning for type {field.type}")
        return
    if action is OnDelete.IGNORE:
        return
    is_array = field.type in ARRAYS
    if not field.index:
        yield Location(f"{at}/index", "must be true, because a deletion searches by it")
    elif is_array and (field.max_length or 0) > FOREIGN_KEY_ELEMENTS:
        detail = f"must be {FOREIGN_KEY_ELEMENTS} at most, because a write looks up each element"
        yield Location(f"{at}/max_length", detail)
    if action is OnDelete.NULLIFY and field.required and not is_array:
        yield Location(location, "must not be nullify, because the field is required")
    target = classes.get(field.to or "")
    if target is not None and target.ttl_s is not None:
        detail = f"only ignore is allowed, because objects of {target.name} expire (ttl_s)"
        yield Location(location, detail)
