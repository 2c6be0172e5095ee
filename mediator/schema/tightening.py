"""Constraints that a schema change tightens: those that stored objects may break.

Each constraint is compared with itself as it was. Whether another pattern is tighter is not
decided: every new pattern counts, as does an enumeration that lacks a former member. A foreign key
is a constraint on the objects that there are, and a unique constraint one on all objects of a
class: what there is, is looked up by who checks it.
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
    "backfillable",
    "tightened",
    "tightened_of",
    "unique_constraints",
]

ConstraintKey: TypeAlias = tuple[str, str, str]
"""Class, field and constraint."""


@dataclass(frozen=True, slots=True)
class TightenedConstraint:
    """One constraint of a field, or of a class (`field` is empty).

    Attributes:
        holds: Whether a value that is neither missing nor null meets it.
        to: Of a foreign key, the class whose objects have to exist.
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
        below = f"/fields{token(self.field)}" if self.field else ""
        return f"/classes{token(self.class_name)}{below}"

    def is_broken_by(self, value: Any) -> bool:
        """Whether a stored value breaks it; None: it is null or missing."""
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
"""Whether a bound is tighter than the one before, by the name of the constraint."""


def tightened(before: Schema, after: Schema, classes: Collection[str]) -> Constraints:
    """Return what a change of a schema tightens in some of its classes, by key.

    A field whose type changes is left out: its values cannot be kept, let alone be compared.
    """
    found = {
        (class_name, name, constraint): TightenedConstraint(class_name, name, constraint, holds)
        for class_name in sorted(classes & after.classes.keys() & before.classes.keys())
        for name, field in throttled(after.classes[class_name].fields.items())
        for constraint, holds in tightened_of(before.classes[class_name].fields.get(name), field)
    }
    for key in added_foreign_keys(before, after):
        former = before.classes.get(key.class_name)
        # A field that is new has no values yet.
        if former is not None and key.class_name in classes and key.field in former.fields:
            at = (key.class_name, key.field, _ON_DELETE)
            found[at] = TightenedConstraint(*at, lambda _: True, key.to)
    return dict(sorted(found.items()))


def unique_constraints(class_: ClassSchema, added: Collection[Sequence[str]]) -> Constraints:
    """Return some unique constraints of a class, by key: each at its place in the schema."""
    single = [(name, _UNIQUE, (name,)) for name, field in class_.fields.items() if field.unique]
    several = [("", f"{_UNIQUE}/{i}", names) for i, names in enumerate(class_.unique)]
    return {
        (class_.name, field, constraint): TightenedConstraint(
            class_.name, field, constraint, lambda _: True, unique=names
        )
        for field, constraint, names in (*single, *several)
        if names in added
    }


def backfillable(schema: Schema, classes: Collection[str]) -> Constraints:
    """Return `required` of the fields that have a default, whether it is new or not, by key."""
    return {
        (class_name, name, _REQUIRED): TightenedConstraint(
            class_name, name, _REQUIRED, lambda _: True
        )
        for class_name in sorted(classes & schema.classes.keys())
        for name, field in throttled(schema.classes[class_name].fields.items())
        if field.required and field.has_default
    }


def tightened_of(before: Field | None, after: Field) -> Iterator[tuple[str, Check]]:
    """Yield name and test of the constraints of a field that are tighter than before.

    Without a field before, no object has a value yet: only `required` can be broken.
    """
    if after.required and not (before and before.required):
        yield _REQUIRED, lambda _: True
    if before is None or (before.type, before.items) != (after.type, after.items):
        return
    checks = {name: holds for name, holds, _ in checks_of(after)}
    longest = after.max_length
    if longest is not None:
        checks["max_length"] = lambda value: len(value) <= longest
    for name, holds in checks.items():
        former = getattr(before, name)
        if former is None or _TIGHTER[name](former, getattr(after, name)):
            yield name, holds
