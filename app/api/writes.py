"""Builders of write operations from request bodies, for single requests and batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from app.api.resources import ClassResource, FieldSelection
from app.http.jsonbody import require_object
from app.http.preconditions import Tags
from mediator.base.errors import Invalid, Location
from mediator.model.operations import (
    Condition,
    Create,
    Delete,
    Get,
    Operation,
    Put,
    ReadModifyWrite,
    Update,
    WriteOperation,
)
from mediator.model.operators import FIELD_OF
from mediator.operations.patch import Compute, FieldChanges, parse_json_patch, parse_merge_patch
from mediator.schema.errors import invalid
from mediator.schema.values import SET_BY_SERVICE

__all__ = [
    "Builder",
    "PlannedOperation",
    "WriteTarget",
    "build_create",
    "build_delete",
    "build_import",
    "build_json_patch",
    "build_merge_patch",
    "build_patch",
    "build_put",
    "build_update",
]


@dataclass(slots=True)
class WriteTarget:
    """The target of a write: its object, operation id and condition.

    Attributes:
        operation: The permanent id of the write.
        fingerprint: Identifies the request among those with the same Idempotency-Key.
        pointer: JSON pointer to the body.
        owner: The owner of a new object whose body names none; None: the body must name one.
        returns_object: Whether to answer with the whole object, if one system has all of it.
    """

    resource: ClassResource
    selection: FieldSelection
    id: str
    operation: str
    condition: Condition
    fingerprint: str | None
    pointer: str = ""
    owner: str | None = None
    returns_object: bool = False


@dataclass(slots=True)
class PlannedOperation:
    """An operation, and the data for its answer.

    Attributes:
        selection: The resource whose ETag is answered.
        touched: The fields that a patch touches and its answer shows; None: those of the resource.
        client_tags: Tags of the client's copies, for which a read answers 304.
    """

    operation: Operation
    resource: ClassResource
    selection: FieldSelection
    touched: tuple[str, ...] | None = None
    client_tags: Tags | None = None


Builder: TypeAlias = Callable[[WriteTarget, Any], PlannedOperation]


def build_create(target: WriteTarget, body: Any) -> PlannedOperation:
    members = _add_owner(_without_id(body, target), target)
    values = target.resource.codec.decode_object(members, target.pointer)
    return _plan(target, Create(*_head(target), values))


def build_put(target: WriteTarget, body: Any) -> PlannedOperation:
    """Replace the resource: the whole object, or exactly the selected fields."""
    body = _without_id(body, target)
    fields = target.selection.fields
    if fields is None:
        values = target.resource.codec.decode_object(_add_owner(body, target), target.pointer)
        return _plan(target, Put(*_head(target), values))
    return _replace(target, fields, body)


def build_import(target: WriteTarget, body: Any) -> PlannedOperation:
    """Put an exported object, with the time of its last write, if it has one.

    References are not checked, because their targets can follow later.
    """
    members = _add_owner(_without_id(body, target), target)
    values = target.resource.route.import_codec.decode_object(members, target.pointer)
    return _plan(target, Put(*_head(target), values, unchecked=True))


def build_delete(target: WriteTarget, body: Any) -> PlannedOperation:  # noqa: ARG001 - the shape of a Builder
    """Delete the resource: the whole object, or the selected fields."""
    fields = target.selection.fields
    if fields is None:
        return _plan(target, Delete(*_head(target)))
    return _replace(target, fields, {})


def build_update(target: WriteTarget, body: Any) -> PlannedOperation:
    return _update(target, target.resource.parse_update(body, target.pointer))


def build_merge_patch(target: WriteTarget, body: Any) -> PlannedOperation:
    """Apply a merge patch (RFC 7396), as an update if possible, otherwise as a revision."""
    resource = target.resource
    body = _without_id(body, target)
    changes = parse_merge_patch(resource.schema, resource.codec, body, target.pointer)
    if isinstance(changes, FieldChanges):
        return _update(target, changes)
    return _revise(target, changes, tuple(body))


def build_json_patch(target: WriteTarget, body: Any) -> PlannedOperation:
    """Apply a JSON Patch (RFC 6902), always as a revision."""
    return _revise(target, parse_json_patch(body, target.pointer), _touched_fields(body))


def build_patch(target: WriteTarget, body: Any) -> PlannedOperation:
    """Apply a JSON Patch (an array) or a merge patch (an object)."""
    return (build_json_patch if isinstance(body, list) else build_merge_patch)(target, body)


def _head(target: WriteTarget) -> tuple[str, str, str, str, Condition, str | None]:
    resource = target.resource
    return (
        resource.database,
        resource.name,
        target.id,
        target.operation,
        target.condition,
        target.fingerprint,
    )


def _plan(
    target: WriteTarget, operation: WriteOperation | Get, touched: tuple[str, ...] | None = None
) -> PlannedOperation:
    return PlannedOperation(operation, target.resource, target.selection, touched)


def _replace(
    target: WriteTarget, fields: tuple[str, ...], body: dict[str, Any]
) -> PlannedOperation:
    """Replace these fields by the body's; fields that it omits are removed."""
    _check_within(body, fields, target.pointer)
    codec = target.resource.codec
    if codec.updated in fields:
        locations = [Location("fields", f"{codec.updated} {SET_BY_SERVICE}")]
        raise Invalid("A field cannot be written.", locations=locations)
    values = codec.decode_fields(body, target.pointer)
    unset = tuple([name for name in fields if name not in values])
    required = [name for name in unset if name not in codec.nullable]
    if required:
        locations = [Location(f"{target.pointer}/{name}", "is required") for name in required]
        raise Invalid("A required field cannot be removed.", locations=locations)
    return _update(target, FieldChanges(values, unset, ()))


def _update(target: WriteTarget, changes: FieldChanges) -> PlannedOperation:
    operators = tuple(changes.operators)
    unset = tuple(changes.unset)
    touched = (*changes.values, *unset, *map(FIELD_OF, operators))
    if target.selection.fields is not None:
        _check_within(touched, target.selection.fields, target.pointer)
    returns_object = _returns_object(target)
    values = target.resource.codec.stamped(changes.values) if touched else changes.values
    update = Update(*_head(target), values, unset, operators, returns_object)
    return _plan(target, update, None if returns_object else _answer_fields(target, touched))


def _revise(
    target: WriteTarget, compute: Compute, touched: tuple[str, ...] | None
) -> PlannedOperation:
    fields = target.selection.fields
    restricted = compute if fields is None else _restrict(compute, fields)
    if (updated := target.resource.codec.updated) is not None:
        restricted = _protect_field(restricted, updated, target.pointer)
    returns_object = _returns_object(target)
    revision = ReadModifyWrite(*_head(target), restricted, returns_object)
    return _plan(target, revision, None if returns_object else _answer_fields(target, touched))


def _answer_fields(target: WriteTarget, touched: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Return the fields in the answer to a change, with the time of the write if selected."""
    updated, fields = target.resource.codec.updated, target.selection.fields
    if updated is None or not touched or (fields is not None and updated not in fields):
        return touched
    return (*touched, updated)


def _protect_field(compute: Compute, name: str, pointer: str) -> Compute:
    """Refuse revisions that change a field that the service sets."""

    def revise(document: dict[str, Any]) -> dict[str, Any]:
        revised = compute(document)
        if revised.get(name) != document.get(name) or (name in revised) != (name in document):
            raise invalid([Location(f"{pointer}/{name}", SET_BY_SERVICE)])
        return revised

    return revise


def _returns_object(target: WriteTarget) -> bool:
    """Whether the answer to a change has the whole object, which needs a single fragment."""
    is_single = len(target.resource.route.fragments) == 1
    return target.returns_object and is_single and target.selection.fields is None


def _restrict(compute: Compute, fields: tuple[str, ...]) -> Compute:
    """Let a revision see and change only the fields of its resource."""

    def revise(document: dict[str, Any]) -> dict[str, Any]:
        visible = {name: document[name] for name in fields if name in document}
        revised = compute(visible)
        _check_within(revised, fields, "")
        hidden = {name: value for name, value in document.items() if name not in fields}
        return hidden | revised

    return revise


def _check_within(names: Iterable[str], fields: tuple[str, ...], pointer: str) -> None:
    unexpected = [name for name in names if name not in fields]
    if unexpected:
        detail = "is not among the fields of the address"
        locations = [Location(f"{pointer}/{name}", detail) for name in unexpected[:100]]
        raise Invalid("The body goes beyond the fields of the address.", locations=locations)


def _without_id(body: Any, target: WriteTarget) -> dict[str, Any]:
    """Remove the id from the body; it must be that of the address."""
    members = require_object(body, target.pointer)
    if "id" not in members:
        return members
    if members["id"] != target.id:
        location = Location(f"{target.pointer}/id", "is not the id of the address")
        raise Invalid("The id in the body is not the id of the address.", locations=[location])
    return {name: value for name, value in members.items() if name != "id"}


def _add_owner(body: dict[str, Any], target: WriteTarget) -> dict[str, Any]:
    """Add the owner of the object, unless the body names one."""
    field = target.resource.schema.owner_field
    if field is None or target.owner is None or field in body:
        return body
    return {field: target.owner, **body}


def _touched_fields(body: Any) -> tuple[str, ...] | None:
    """Return the fields that a valid JSON Patch touches; None: the whole object."""
    pointers = [step["path"] for step in body]
    pointers += [step["from"] for step in body if step["op"] == "move"]
    if not all(pointers):
        return None
    return tuple(dict.fromkeys([pointer.split("/")[1] for pointer in pointers]))
