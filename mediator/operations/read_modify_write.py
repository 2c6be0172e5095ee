"""Read-modify-write: read, compute, and write if no other write came in between."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from mediator.base.errors import Conflict, Invalid, Location, NotFound, PreconditionFailed
from mediator.base.offload import offload
from mediator.model.operations import (
    ANYTHING,
    Condition,
    Get,
    Outcome,
    ReadModifyWrite,
    Update,
    WriteOperation,
)
from mediator.routing.fragments import completed
from mediator.routing.model import ClassRoute
from mediator.schema.types import Values

__all__ = ["ATTEMPTS", "alternative", "matching_versions", "read_modify_write", "update_of"]

_Read: TypeAlias = Callable[[Get], Awaitable[Outcome]]

ATTEMPTS = 32
"""How often a write conditional on the versions read is tried."""


async def read_modify_write(
    route: ClassRoute,
    operation: ReadModifyWrite | Update,
    read: _Read,
    apply: Callable[[ClassRoute, Update, Mapping[str, int]], Awaitable[Outcome]],
) -> Outcome:
    """Execute a read-modify-write, starting over when another write was faster.

    An update reads only what it lacks (`completed`). A write that changes nothing is still written
    if it came with a key: a retry must find its answer, and not the values of later writes.

    Raises:
        PreconditionFailed: The object does not meet the operation's condition.
        Conflict: Other writes were faster every time.
    """
    for _ in range(ATTEMPTS):
        current, _ = await _match(operation, read)
        # In a thread: a patch may move large values many times, which only computing it shows.
        update = await offload(True, update_of, route, operation, current)
        if update.is_void:
            return current
        try:
            return await apply(route, update, _expectations(current.versions))
        except PreconditionFailed:
            continue
    raise Conflict("Other writes keep changing the object; try again.")


async def matching_versions(operation: WriteOperation, read: _Read) -> Mapping[str, int]:
    """Read which of several alternatives of If-Match holds, to make it the write's condition.

    Raises:
        PreconditionFailed: None does.
    """
    _, matched = await _match(operation, read)
    return _expectations(matched)


def _expectations(versions: Mapping[str, int | None]) -> Mapping[str, int]:
    return {group: version or 0 for group, version in versions.items()}


async def _match(
    operation: WriteOperation, read: _Read
) -> tuple[Outcome, Mapping[str, int | None]]:
    """Read the object, and select its versions that the condition names."""
    current = await _current(operation, read)
    matched = alternative(operation.condition, current.versions)
    if matched is None:
        raise PreconditionFailed(f"{operation.class_name}/{operation.id} was changed meanwhile.")
    return current, matched


async def _current(operation: WriteOperation, read: _Read) -> Outcome:
    try:
        return await read(Get(operation.database, operation.class_name, operation.id))
    except NotFound as error:
        # RFC 9110, section 13.1.1: If-Match is false where there is no representation.
        if operation.condition != ANYTHING:
            raise PreconditionFailed(error.detail) from error
        raise


def alternative(
    condition: Condition, current: Mapping[str, int | None]
) -> Mapping[str, int | None] | None:
    """Find the alternative of If-Match that names the current versions; empty: no condition."""
    for versions in condition.versions or ({},):
        if all(current.get(group) == version for group, version in versions.items()):
            return versions
    return None


def update_of(route: ClassRoute, operation: ReadModifyWrite | Update, current: Outcome) -> Update:
    """Reduce the object's new form to the fields that differ, plus the time if any do."""
    if isinstance(operation, Update):
        return completed(route, replace(operation, condition=ANYTHING), current.values or {})
    return completed(route, _reduce(route, operation, current), current.values or {})


def _reduce(route: ClassRoute, operation: ReadModifyWrite, current: Outcome) -> Update:
    before = route.codec.encode(current.values or {})
    after = operation.compute(route.codec.encode(current.values or {}))
    changed = {k: v for k, v in after.items() if k not in before or not _same(before[k], v)}
    unset = tuple(name for name in before if name not in after)
    _check_required(route, unset)
    return Update(
        database=operation.database,
        class_name=operation.class_name,
        id=operation.id,
        operation=operation.operation,
        fingerprint=operation.fingerprint,
        values=_decode(route, changed) if changed or unset else {},
        unset=unset,
        whole=operation.whole,
    )


def _decode(route: ClassRoute, changed: dict[str, Any]) -> Values:
    # The computed time of a write, as in a backfill, is replaced by that of this attempt.
    members = {name: value for name, value in changed.items() if name != route.codec.updated}
    return route.codec.stamped(route.codec.decode_fields(members))


def _same(left: Any, right: Any) -> bool:
    # 1, 1.0 and True are equal in Python and different in JSON, at any depth.
    return repr(left) == repr(right)


def _check_required(route: ClassRoute, unset: tuple[str, ...]) -> None:
    locations = [
        Location(f"/{name}", "the field is required")
        for name in unset
        if route.schema.fields[name].required
    ]
    if locations:
        raise Invalid("A required field cannot be removed.", locations=locations)
