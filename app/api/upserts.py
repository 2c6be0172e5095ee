"""Upserts: a patch of an object that is created first if it does not exist.

The patch is sent, and, if there is no object, the creation of what it makes of one that has only
its defaults; if another client was faster with that, the patch once more. Both have one operation
id: of several attempts under a key one takes effect, and the others get its answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.api.submission import submit
from app.api.writes import PlannedOperation, WriteTarget, build_create
from mediator.base.errors import AlreadyExists, Conflict, NotFound
from mediator.data_plane.port import DataPlane
from mediator.model.operations import Outcome, ReadModifyWrite, Update
from mediator.operations.merge import computed_values
from mediator.operations.read_modify_write import ATTEMPTS
from mediator.schema.types import Values

__all__ = ["created_by", "updated", "upsert"]


async def upsert(
    plane: DataPlane, patch: PlannedOperation, target: WriteTarget
) -> tuple[PlannedOperation, Outcome]:
    """Patch an object, or create it; returns which of them took effect, and its outcome.

    Raises:
        Invalid: There is no object, and a required field is neither set nor has a default.
        Conflict: Others keep creating and deleting the object.
    """
    for _ in range(ATTEMPTS):
        outcome = await _patched(plane, patch)
        if outcome is not None:
            return patch, outcome
        creation = created_by(patch, target, {})
        try:
            return creation, await submit(plane, creation)
        except AlreadyExists:
            continue
    raise Conflict("The object is being created and deleted all the time; try again.")


async def _patched(plane: DataPlane, patch: PlannedOperation) -> Outcome | None:
    """Return the outcome of a patch; None: there is no object, or an attempt before created it."""
    try:
        outcome = await submit(plane, patch)
    except NotFound:
        return None
    # No patch creates: it is the answer to the creation under this key, which shows other fields.
    return None if outcome.created else outcome


def created_by(
    patch: PlannedOperation, target: WriteTarget, given: Mapping[str, Any]
) -> PlannedOperation:
    """Return the creation of what a patch makes of an object that has only its defaults.

    `given`: further members that it has, as JSON.
    """
    codec, operation = target.resource.codec, patch.operation
    document = {**codec.defaults(), **given}
    if isinstance(operation, ReadModifyWrite):
        document = operation.compute(document)
    else:
        assert isinstance(operation, Update)
        fields = target.resource.schema.fields
        values = updated(codec.decode_fields(document), operation)
        document = codec.encode(values | computed_values(fields, operation.operators, values))
    # Every creation sets the time of the write itself.
    members = {name: value for name, value in document.items() if name != codec.updated}
    return build_create(target, members)


def updated(values: Values, update: Update) -> Values:
    """Return what an update makes of values, but for its operators."""
    kept = {name: value for name, value in values.items() if name not in update.unset}
    return {**kept, **update.values}
