"""From the bodies of requests to write operations; single requests and batches share them."""

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
    """Where a write goes, under which id, on which condition.

    Attributes:
        operation: The id of the write, for ever.
        fingerprint: Of the request, to compare with others under the same Idempotency-Key.
        pointer: Where its body is.
        owner: The subject that owns a new object whose body names none; None: the body has to.
        returns_object: Whether the answer is to show the whole object, if one system has all of it.
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
    """An operation with what its answer needs.

    Attributes:
        selection: The resource whose ETag is answered.
        touched: The fields that a patch names and its answer shows; None: those of the resource.
        client_tags: Tags of the copies that the client has: a read answers 304 for them.
    """

    operation: Operation
    resource: ClassResource
    selection: FieldSelection
    touched: tuple[str, ...] | None = None
    client_tags: Tags | None = None


Builder: TypeAlias = Callable[[WriteTarget, Any], PlannedOperation]


def build_create(target: WriteTarget, body: Any) -> PlannedOperation:
    members = _owned(_without_id(body, target), target)
    values = target.resource.codec.decode_object(members, target.pointer)
    return _plan(target, Create(*_head(target), values))


def build_put(target: WriteTarget, body: Any) -> PlannedOperation:
    """Replace the resource: the whole object, or exactly the fields that it shows."""
    body = _without_id(body, target)
    fields = target.selection.fields
    if fields is None:
        values = target.resource.codec.decode_object(_owned(body, target), target.pointer)
        return _plan(target, Put(*_head(target), values))
    return _replace(target, fields, body)


def build_import(target: WriteTarget, body: Any) -> PlannedOperation:
    """Put an object as an export has it: with the time of its last write, if it has one.

    What it refers to may come later, so that is not checked.
    """
    members = _owned(_without_id(body, target), target)
    values = target.resource.route.import_codec.decode_object(members, target.pointer)
    return _plan(target, Put(*_head(target), values, unchecked=True))


def build_delete(target: WriteTarget, body: Any) -> PlannedOperation:  # noqa: ARG001 - the shape of a Builder
    """Delete the resource: the whole object, or the fields that it shows."""
    fields = target.selection.fields
    if fields is None:
        return _plan(target, Delete(*_head(target)))
    return _replace(target, fields, {})


def build_update(target: WriteTarget, body: Any) -> PlannedOperation:
    return _update(target, target.resource.parse_update(body, target.pointer))


def build_merge_patch(target: WriteTarget, body: Any) -> PlannedOperation:
    """Apply a merge patch (RFC 7396): an update if it can be one, else a revision."""
    resource = target.resource
    body = _without_id(body, target)
    parts = parse_merge_patch(resource.schema, resource.codec, body, target.pointer)
    if isinstance(parts, FieldChanges):
        return _update(target, parts)
    return _revise(target, parts, tuple(body))


def build_json_patch(target: WriteTarget, body: Any) -> PlannedOperation:
    """Apply a JSON Patch (RFC 6902): always a revision."""
    return _revise(target, parse_json_patch(body, target.pointer), _patched(body))


def build_patch(target: WriteTarget, body: Any) -> PlannedOperation:
    """An array is a JSON Patch, an object a merge patch: neither can be the other."""
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
    """Make some fields exactly what the body says: those it leaves out are removed."""
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


def _update(target: WriteTarget, parts: FieldChanges) -> PlannedOperation:
    operators = tuple(parts.operators)
    unset = tuple(parts.unset)
    touched = (*parts.values, *unset, *map(FIELD_OF, operators))
    if target.selection.fields is not None:
        _check_within(touched, target.selection.fields, target.pointer)
    returned = _returns_object(target)
    values = target.resource.codec.stamped(parts.values) if touched else parts.values
    update = Update(*_head(target), values, unset, operators, returned)
    return _plan(target, update, None if returned else _shown(target, touched))


def _revise(
    target: WriteTarget, compute: Compute, touched: tuple[str, ...] | None
) -> PlannedOperation:
    fields = target.selection.fields
    narrowed = compute if fields is None else _narrow(compute, fields)
    if (updated := target.resource.codec.updated) is not None:
        narrowed = _keep(narrowed, updated, target.pointer)
    returned = _returns_object(target)
    revision = ReadModifyWrite(*_head(target), narrowed, returned)
    return _plan(target, revision, None if returned else _shown(target, touched))


def _shown(target: WriteTarget, touched: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Return the fields that the answer to a change shows: with the time of the write, if asked."""
    updated, fields = target.resource.codec.updated, target.selection.fields
    if updated is None or not touched or (fields is not None and updated not in fields):
        return touched
    return (*touched, updated)


def _keep(compute: Compute, name: str, pointer: str) -> Compute:
    """Refuse revisions that change a field which the service sets."""

    def revise(document: dict[str, Any]) -> dict[str, Any]:
        revised = compute(document)
        if revised.get(name) != document.get(name) or (name in revised) != (name in document):
            raise invalid([Location(f"{pointer}/{name}", SET_BY_SERVICE)])
        return revised

    return revise


def _returns_object(target: WriteTarget) -> bool:
    """Whether the answer to a change shows all of the object: one write has to return it."""
    one = len(target.resource.route.fragments) == 1
    return target.returns_object and one and target.selection.fields is None


def _narrow(compute: Compute, fields: tuple[str, ...]) -> Compute:
    """Let a revision see and change only the fields of its resource."""

    def revise(document: dict[str, Any]) -> dict[str, Any]:
        shown = {name: document[name] for name in fields if name in document}
        revised = compute(shown)
        _check_within(revised, fields, "")
        hidden = {name: value for name, value in document.items() if name not in fields}
        return hidden | revised

    return revise


def _check_within(names: Iterable[str], fields: tuple[str, ...], pointer: str) -> None:
    beyond = [name for name in names if name not in fields]
    if beyond:
        detail = "is not among the fields of the address"
        locations = [Location(f"{pointer}/{name}", detail) for name in beyond[:100]]
        raise Invalid("The body goes beyond the fields of the address.", locations=locations)


def _without_id(body: Any, target: WriteTarget) -> dict[str, Any]:
    """Drop the id that a representation carries; it must be the object's own."""
    members = require_object(body, target.pointer)
    if "id" not in members:
        return members
    if members["id"] != target.id:
        location = Location(f"{target.pointer}/id", "is not the id of the address")
        raise Invalid("The id in the body is not the id of the address.", locations=[location])
    return {name: value for name, value in members.items() if name != "id"}


def _owned(body: dict[str, Any], target: WriteTarget) -> dict[str, Any]:
    """Add the owner of the object, unless the client named one."""
    field = target.resource.schema.owner_field
    if field is None or target.owner is None or field in body:
        return body
    return {field: target.owner, **body}


def _patched(body: Any) -> tuple[str, ...] | None:
    """Name the fields that a valid JSON Patch touches; None for the whole object."""
    pointers = [step["path"] for step in body]
    pointers += [step["from"] for step in body if step["op"] == "move"]
    if not all(pointers):
        return None
    return tuple(dict.fromkeys([pointer.split("/")[1] for pointer in pointers]))
