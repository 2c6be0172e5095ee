"""Ownership of objects: reads and writes of a subject's objects, and errors for those of others.

Pure functions, which `mediator.access.owned_plane` applies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

from mediator.base.errors import (
    AlreadyExists,
    Forbidden,
    MediatorError,
    NotFound,
    PreconditionFailed,
)
from mediator.model.operations import (
    ANYTHING,
    Condition,
    Create,
    Get,
    Outcome,
    Put,
    ReadModifyWrite,
    Update,
    WriteOperation,
)
from mediator.operations.merge import failure_of
from mediator.routing.fragments import resource_groups
from mediator.routing.model import ClassRoute
from mediator.schema.tree import MAIN_GROUP
from mediator.stores.port import Status, WriteResult

__all__ = [
    "ADMIN",
    "Owner",
    "bind_to_absence",
    "binding_groups",
    "hidden_error",
    "is_mine",
    "keep_owner",
    "restrict",
    "restrict_result",
    "with_owner",
]

ADMIN: Final = {"scope": "admin"}
"""Extra members of the problem of a request reserved to administrators."""

_GONE: Final = WriteResult(Status.MISSING)


class Owner(NamedTuple):
    """The owner field of a class, and the subject whose objects are visible."""

    field: str
    subject: str


def with_owner(operation: Get, owner: Owner) -> Get:
    fields = operation.fields
    if fields is None or owner.field in fields:
        return operation
    return replace(operation, fields=tuple(sorted((*fields, owner.field))))


def restrict(route: ClassRoute, get: Get, owner: Owner, outcome: Outcome) -> Outcome:
    """Return the requested fields of an object; `NotFound` if it is another subject's."""
    if not is_mine(owner, outcome):
        raise NotFound(f"{get.class_name}/{get.id} does not exist.")
    if get.fields is None or owner.field in get.fields:
        return outcome
    values, versions = dict(outcome.values or {}), outcome.versions
    del values[owner.field]
    groups = resource_groups(route, get.fields)
    return replace(
        outcome,
        values=values,
        versions={group: versions.get(group) for group in groups},
        partial=tuple(group for group in outcome.partial if group in groups),
    )


def restrict_result(
    route: ClassRoute, get: Get, owner: Owner, outcome: Outcome | MediatorError
) -> Outcome | MediatorError:
    """Restrict a result, which may be an error; returns errors instead of raising them."""
    if isinstance(outcome, MediatorError):
        return outcome
    try:
        return restrict(route, get, owner, outcome)
    except NotFound as error:
        return error


def is_mine(owner: Owner, outcome: Outcome) -> bool:
    return (outcome.values or {}).get(owner.field) == owner.subject


def keep_owner(owner: Owner, operation: WriteOperation) -> WriteOperation:
    """Return a write that does not change the owner; `Forbidden` if it would."""
    match operation:
        case Create() | Put():
            _check_value(owner, operation.values.get(owner.field))
        case Update() if owner.field in operation.touched:
            _check_value(owner, operation.values.get(owner.field))
        case ReadModifyWrite():
            return replace(operation, compute=_with_owner_check(owner, operation))
    return operation


def _with_owner_check(
    owner: Owner, operation: ReadModifyWrite
) -> Callable[[dict[str, object]], dict[str, object]]:
    def compute(document: dict[str, object]) -> dict[str, object]:
        revised = operation.compute(document)
        if owner.field in revised:  # else it is refused, as the field is required
            _check_value(owner, revised[owner.field])
        return revised

    return compute


def _check_value(owner: Owner, value: object) -> None:
    if value != owner.subject:
        detail = f"{owner.field} names the owner, and must be the subject of the request."
        raise Forbidden(detail, extra=ADMIN)


def bind_to_absence(operation: WriteOperation) -> WriteOperation:
    """Bind a write to the absence of the object; raises its error if it cannot create."""
    condition = operation.condition
    if isinstance(operation, Put) and not condition.versions and condition.present is not True:
        return replace(operation, condition=Condition(present=False))
    raise _missing(operation)


def hidden_error(operation: WriteOperation) -> MediatorError:
    """Return the error for another subject's object: as if it were missing, if possible."""
    if isinstance(operation, Put):
        name = f"{operation.class_name}/{operation.id}"
        if operation.condition == ANYTHING:
            return AlreadyExists(f"{name} exists.")
        if operation.condition.present is False:
            return PreconditionFailed(f"{name} exists.")
    return _missing(operation)


def _missing(operation: WriteOperation) -> MediatorError:
    failure = failure_of(operation, _GONE)
    assert failure is not None
    return failure


def binding_groups(route: ClassRoute, operation: WriteOperation) -> set[str]:
    """Return the groups whose versions bind a write: the owner's, and groups written elsewhere."""
    groups = {MAIN_GROUP}
    if isinstance(operation, Update):
        for name in operation.touched:
            if route.fragment_of[name] is not route.anchor:
                groups.add(route.group_of[name])
    return groups
