"""Constraints that a schema change tightens, which stored objects may violate.

Each constraint is compared with its former version. Patterns are not compared for strictness: every
new pattern counts as tighter, as does an enumeration that lacks a former member. A foreign key
constrains the existing objects, a unique constraint all objects of a class: the caller that checks
these constraints looks up the objects.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from mediator.base.offload import throttled
from mediator.schema.constraints import Check, checks_of
from mediator.schema.errors import token
from mediator.schema.foreign_keys import added_foreign_keys
from mediator.schema.tree import ClassSchema, Field, Schema

__all__ = [
    "Constraints",
    "TightenedConstraint",
    "backfillable_constraints",
    "tightened_constraints",
    "tighter_checks",
    "unique_constraints",
]

ConstraintKey: TypeAlias = tuple[str, str, str]
"""Class, field and constraint."""


@dataclass(frozen=True, slots=True)
class TightenedConstraint:
    """One constraint of a field, or of a class (`field` is empty).

    Attributes:
        holds: Whether a value that is neither missing nor null meets it.
        to: Of a foreign key, the class whose objects must exist.
        unique: Of a unique constraint, its fields.
    """

    class_name: str
    field: str
    constraint: str
    holds: Check
    to: str | None = None
    unique: tuple[str, ...] = ()

    @property
    def fields(self) -> tuple[str, ...]:
        return self.unique or (self.field,)

    @property
    def location(self) -> str:
        """The JSON pointer of the field, or of the class, in the schema."""
        pointer = f"/fields{token(self.field)}" if self.field else ""
        return f"/classes{token(self.class_name)}{pointer}"

    def is_broken_by(self, value: Any) -> bool:
        """Whether a stored value violates it; None: it is null or missing."""
        return self.constraint == _REQUIRED if value is None else not self.holds(value)


Constraints: TypeAlias = Mapping[ConstraintKey, TightenedConstraint]

_REQUIRED: Final = "required"
_ON_DELETE: Final = "on_delete"
_UNIQUE: Final = "unique"

_TIGHTER: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "minimum": lambda before, after: after > before,
    "maximum": lambda before, after: after < before,
    "min_length": lambda before, after: after > before,
    "max_length": lambda before, after: after < before,
    "enum": lambda before, after: not set(before) <= set(after),
    "pattern": lambda before, after: after != before,
}
"""Whether a bound is tighter than the former one, by the name of the constraint."""


def tightened_constraints(before: Schema, after: Schema, classes: Collection[str]) -> Constraints:
    """Return the constraints that a schema change tightens in some classes, by key.

    A field whose type changes is left out: its values cannot be kept, let alone compared.
    """
    constraints = {
        (class_name, name, constraint): TightenedConstraint(class_name, name, constraint, holds)
        for class_name in sorted(classes & after.classes.keys() & before.classes.keys())
        for name, field in throttled(after.classes[class_name].fields.items())
        for constraint, holds in tighter_checks(before.classes[class_name].fields.get(name), field)
    }
    for key in added_foreign_keys(before, after):
        former = before.classes.get(key.class_name)
        # A new field has no values yet.
        if former is not None and key.class_name in classes and key.field in former.fields:
            constraint_key = (key.class_name, key.field, _ON_DELETE)
            constraints[constraint_key] = TightenedConstraint(
                *constraint_key, lambda _: True, key.to
            )
    return dict(sorted(constraints.items()))


def unique_constraints(class_: ClassSchema, added: Collection[Sequence[str]]) -> Constraints:
    """Return some unique constraints of a class, by key, each at its location in the schema."""
    single = [(name, _UNIQUE, (name,)) for name, field in class_.fields.items() if field.unique]
    compound = [("", f"{_UNIQUE}/{i}", names) for i, names in enumerate(class_.unique)]
    return {
        (class_.name, field, constraint): TightenedConstraint(
            class_.name, field, constraint, lambda _: True, unique=names
        )
        for field, constraint, names in (*single, *compound)
        if names in added
    }


def backfillable_constraints(schema: Schema, classes: Collection[str]) -> Constraints:
    """Return the `required` constraints, new or old, of fields that have a default, by key."""
    return {
        (class_name, name, _REQUIRED): TightenedConstraint(
            class_name, name, _REQUIRED, lambda _: True
        )
        for class_name in sorted(classes & schema.classes.keys())
        for name, field in throttled(schema.classes[class_name].fields.items())
        if field.required and field.has_default
    }


def tighter_checks(before: Field | None, after: Field) -> Iterator[tuple[str, Check]]:
    """Yield name and test of a field's constraints that are tighter than before.

    Without a former field, no object has a value yet: only `required` can be violated.
    """
    if after.required and not (before and before.required):
        yield _REQUIRED, lambda _: True
    if before is None or (before.type, before.items) != (after.type, after.items):
        return
    checks = {name: holds for name, holds, _ in checks_of(after)}
    max_length = after.max_length
    if max_length is not None:
        checks["max_length"] = lambda value: len(value) <= max_length
    for name, holds in checks.items():
        former = getattr(before, name)
        if former is None or _TIGHTER[name](former, getattr(after, name)):
            yield name, holds
