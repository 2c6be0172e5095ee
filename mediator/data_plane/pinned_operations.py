"""Operations by the names of a former schema, as operations by the present ones.

A request never touches a field that its version lacks: a client that cannot see a field must not
remove it. When an object is created, such a field gets its default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypeAlias

from mediator.base.errors import Conflict, Location, MediatorError
from mediator.data_plane.pinned_queries import changed_meanwhile, former_outcome, former_values
from mediator.model.operations import (
    Create,
    Delete,
    Get,
    Operation,
    Outcome,
    Put,
    ReadModifyWrite,
    Update,
)
from mediator.routing.former_schemas import ClassNames, FormerSchema
from mediator.schema.types import Values
from mediator.schema.values import Codec

__all__ = ["PinnedOperation"]

_Compute: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]


class PinnedOperation:
    """One operation and the names of its class.

    Attributes:
        operation: As the client sent it.
        present: The same by present names; a put or a creation has no hidden fields.
        keeps_hidden: Whether it is a put over fields that the version lacks.
    """

    def __init__(self, schema: FormerSchema, operation: Operation) -> None:
        self._schema = schema
        self._names = schema.names[operation.class_name]
        self._route = schema.now.classes[operation.class_name]
        self._refusal: MediatorError | None = None
        self.operation = operation
        self.present = self._translate(operation)
        self.keeps_hidden = isinstance(operation, Put) and bool(self._names.hidden)

    @property
    def requires_condition(self) -> bool:
        """Whether the class requires If-Match, and the operation has no condition."""
        condition = self.operation.condition if not isinstance(self.operation, Get) else None
        return (
            self._route.schema.require_if_match
            and condition is not None
            and not (condition.versions or condition.present is not None)
        )

    def _translate(self, operation: Operation) -> Operation:
        names = self._names
        match operation:
            case Get(fields=fields):
                present = None if fields is None else tuple(sorted(names.all_present(fields)))
                return replace(operation, fields=present)
            case Create() | Put():
                return replace(operation, values=self._values(operation.values))
            case Update():
                return self._update(operation)
            case ReadModifyWrite():
                return replace(operation, compute=self._wrap_compute(operation.compute))
            case Delete():
                return operation

    def _values(self, values: Values) -> Values:
        present = self._names.present
        return {present[name]: value for name, value in values.items()}

    def _update(self, operation: Update) -> Update:
        names = self._names
        calls = [replace(c, field=names.present[c.field]) for c in operation.operators]
        values = self._values(operation.values)
        return replace(
            operation,
            values=values if operation.is_empty else self._stamp(values),
            unset=names.all_present(operation.unset),
            operators=tuple(calls),
        )

    def _stamp(self, values: Values) -> Values:
        """Add the time of the write, if the version lacks the field for it."""
        codec = self._route.codec
        return codec.stamped(values) if codec.updated in self._names.hidden else values

    def _wrap_compute(self, compute: _Compute) -> _Compute:
        """Wrap a compute to see and change the fields of the version, by their names there.

        A field that is neither of the version nor hidden was added or renamed since this request
        began. The compute would not return it, and fields that it does not return are removed.
        """
        names, codec = self._names, self._schema.classes[self.operation.class_name].codec

        def revise(document: dict[str, Any]) -> dict[str, Any]:
            if document.keys() - names.hidden - names.former.keys():
                raise changed_meanwhile(self.operation.class_name)
            hidden = {name: value for name, value in document.items() if name in names.hidden}
            visible = {names.former[n]: value for n, value in document.items() if n in names.former}
            try:
                revised = compute(visible)
                _check_members(revised, names, codec)
            except MediatorError as error:
                self._refusal = error
                raise
            return hidden | {names.present[name]: value for name, value in revised.items()}

        return revise

    def creation(self) -> Create | Put:
        """Return a creation, or a put that may create, with the defaults of hidden fields.

        Raises:
            Conflict: A field that the version lacks is required, and has no default.
        """
        operation = self.present
        assert isinstance(operation, Create | Put)
        hidden, codec = self._names.hidden, self._route.codec
        fields = self._route.schema.fields
        missing = sorted(n for n in hidden if fields[n].required and not fields[n].has_default)
        if missing:
            raise self._cannot_create(missing)
        defaulted = sorted(n for n in hidden if fields[n].has_default and n != codec.updated)
        values = {**operation.values, **codec.decode_fields(codec.defaults(defaulted))}
        return replace(operation, values=self._stamp(values))

    def _cannot_create(self, missing: Iterable[str]) -> Conflict:
        detail = f"is required, and version {self._schema.version} does not have it"
        return Conflict(
            f"Version {self._schema.version} of {self._schema.database} creates no objects of"
            f" {self.operation.class_name} any more: a field without a default is required now.",
            locations=[Location(f"/{name}", detail) for name in missing],
        )

    def replacement(self) -> Update:
        """Return the update that makes the fields of the version exactly those of a put."""
        put = self.present
        assert isinstance(put, Put)
        unset = tuple([name for name in self._names.former if name not in put.values])
        values, unchecked = self._stamp(put.values), put.unchecked
        return Update(*put.head, values, unset, unchecked=unchecked)

    def outcome(self, outcome: Outcome) -> Outcome:
        """Return an outcome by the names of the version; raises as `former_outcome`, if it read."""
        if isinstance(self.operation, Get):
            return former_outcome(self._schema, self.operation.class_name, outcome)
        return replace(outcome, values=former_values(outcome.values, self._names))

    def error(self, error: MediatorError) -> MediatorError:
        """Rename the fields of an error as in the version; errors of a compute are so already."""
        if error is not self._refusal:
            error.locations = tuple(
                [self._rename_location(location) for location in error.locations]
            )
        return error

    def _rename_location(self, location: Location) -> Location:
        start, _, rest = location.pointer.removeprefix("/").partition("/")
        name = self._names.former.get(start)
        if name is None or not location.pointer.startswith("/"):
            return location
        return Location(f"/{name}/{rest}" if rest else f"/{name}", location.detail)


def _check_members(document: dict[str, Any], names: ClassNames, codec: Codec) -> None:
    """Raise `Invalid` for members that are not fields of the version, but perhaps present ones."""
    if unknown := {name: None for name in document if name not in names.present}:
        codec.decode_fields(unknown)
