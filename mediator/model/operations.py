"""The operations on one object, as clients send them, before routing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from mediator.base.immutable import immutable
from mediator.model.operators import FIELD_OF, OperatorCall
from mediator.schema.tree import MAIN_GROUP
from mediator.schema.types import Values

__all__ = [
    "ANYTHING",
    "NEVER",
    "Condition",
    "Create",
    "Delete",
    "Freshness",
    "Get",
    "Operation",
    "Outcome",
    "Put",
    "ReadModifyWrite",
    "Update",
    "WriteOperation",
]


@dataclass(frozen=True, slots=True)
class Condition:
    """The precondition of a write (RFC 9110, section 13).

    Attributes:
        present: True: the object must exist (If-Match: *); False: it must not
            (If-None-Match: *).
        versions: Versions that groups must have (If-Match with an ETag); None stands for a group
            that must be absent. Several alternatives: any one may match.
    """

    present: bool | None = None
    versions: tuple[Mapping[str, int | None], ...] = ()


ANYTHING = Condition()
NEVER: Final = Condition(versions=({MAIN_GROUP: -1},))
"""Holds for no object: a write with it is answered if it is a retry, and refused otherwise."""


@immutable
class Get:
    """Read an object, or some of its fields (sorted, without duplicates)."""

    database: str
    class_name: str
    id: str
    fields: tuple[str, ...] | None = None


@immutable
class _Write:
    """The base of all writes.

    `operation` identifies the write for ever; a retry carries the same one. `fingerprint` is set
    when the client gave an Idempotency-Key: then the response is recorded with the write.
    """

    database: str
    class_name: str
    id: str
    operation: str
    condition: Condition = ANYTHING
    fingerprint: str | None = None

    @property
    def head(self) -> tuple[str, str, str, str, Condition, str | None]:
        """The common fields of all writes, in order."""
        return (
            self.database,
            self.class_name,
            self.id,
            self.operation,
            self.condition,
            self.fingerprint,
        )


@immutable
class Create(_Write):
    """Create an object that must not exist."""

    values: Values = field(default_factory=dict)


@immutable
class Put(_Write):
    """Create an object, or replace it, with exactly `values`.

    `unchecked`: it may refer to missing objects, as in an import.
    """

    values: Values = field(default_factory=dict)
    unchecked: bool = False


@immutable
class Update(_Write):
    """Set, remove and operate on fields of an existing object.

    `whole`: the outcome has all values of the object, which is on one system. `unchecked`: as of
    a put.
    """

    values: Values = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    operators: tuple[OperatorCall, ...] = ()
    whole: bool = False
    unchecked: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.values or self.unset or self.operators)

    @property
    def is_void(self) -> bool:
        """Whether a store has nothing to do: no change, and no answer to remember."""
        return self.is_empty and self.fingerprint is None

    @property
    def touched(self) -> tuple[str, ...]:
        return (*self.values, *self.unset, *map(FIELD_OF, self.operators))


@immutable
class ReadModifyWrite(_Write):
    """Compute an object's new form from its current one; retried when another write was faster.

    `compute` takes the object as JSON without `id` and returns the new one, or raises `Invalid`.
    `whole` is that of the update that it becomes.
    """

    compute: Callable[[dict[str, Any]], dict[str, Any]] = dict
    whole: bool = False


@immutable
class Delete(_Write):
    """Delete an object.

    `unchecked`: objects that refer to it stay unchanged.
    """

    unchecked: bool = False


WriteOperation: TypeAlias = Create | Put | Update | ReadModifyWrite | Delete
Operation: TypeAlias = Get | WriteOperation


@dataclass(frozen=True, slots=True)
class Freshness:
    """How old an answer of the view may be: the bound, and the age measured (s)."""

    bound_s: float
    measured_s: float


@immutable
class Outcome:
    """The result of an operation that succeeded; failures are raised as `MediatorError`.

    Attributes:
        values: Get, and writes that compute values in the store: the existing fields of the
            resource, merged over systems. None after a delete.
        versions: Version of every group of the resource; None where the group is absent.
        created: The write created the object.
        replayed: The write had taken effect before, under the same operation id.
        partial: Groups that may lack a write over several systems that other groups already show.
        pending: A write over several systems is about to change the data read, or under way.
        schema_version: Version of the class's schema that the values belong to.
        systems: Systems that took part, in order.
        freshness: Set if the view answered.
    """

    id: str
    values: Values | None
    versions: Mapping[str, int | None]
    created: bool = False
    replayed: bool = False
    partial: tuple[str, ...] = ()
    pending: bool = False
    schema_version: int = 1
    systems: tuple[str, ...] = ()
    freshness: Freshness | None = None
