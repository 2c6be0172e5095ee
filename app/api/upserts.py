"""Upserts: patches that create a missing object.

The patch is tried first. If there is no object, one is created: the patch applied to the defaults.
If another client creates it first, the patch is retried. Patch and creation share an operation id:
of several attempts under a key one takes effect, and the others get its answer.
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

__all__ = ["apply_update", "creation_from_patch", "upsert"]


async def upsert(
    plane: DataPlane, patch: PlannedOperation, target: WriteTarget
) -> tuple[PlannedOperation, Outcome]:
    """Patch an object, or create it; return the operation that took effect, and its outcome.

    Raises:
        Invalid: There is no object, and a required field is neither set nor has a default.
        Conflict: Others keep creating and deleting the object.
    """
    for _ in range(ATTEMPTS):
        outcome = await _try_patch(plane, patch)
        if outcome is not None:
            return patch, outcome
        creation = creation_from_patch(patch, target, {})
        try:
            return creation, await submit(plane, creation)
        except AlreadyExists:
            continue
    raise Conflict("The object is being created and deleted all the time; try again.")


async def _try_patch(plane: DataPlane, patch: PlannedOperation) -> Outcome | None:
    """Return the outcome of a patch; None: there is no object, or an earlier attempt created it."""
    try:
        outcome = await submit(plane, patch)
    except NotFound:
        return None
    # A patch never creates, so this answers the creation under this key, which has other fields.
    return None if outcome.created else outcome


def creation_from_patch(
    patch: PlannedOperation, target: WriteTarget, key_members: Mapping[str, Any]
) -> PlannedOperation:
    """Return the creation of an object: its defaults and `key_members` (JSON), patched."""
    codec, operation = target.resource.codec, patch.operation
    document = {**codec.defaults(), **key_members}
    if isinstance(operation, ReadModifyWrite):
        document = operation.compute(document)
    else:
        assert isinstance(operation, Update)
        fields = target.resource.schema.fields
        values = apply_update(codec.decode_fields(document), operation)
        document = codec.encode(values | computed_values(fields, operation.operators, values))
    # The creation sets the time of the write.
    members = {name: value for name, value in document.items() if name != codec.updated}
    return build_create(target, members)


def apply_update(values: Values, update: Update) -> Values:
    """Apply an update to values, except its operators."""
    remaining = {name: value for name, value in values.items() if name not in update.unset}
    return {**remaining, **update.values}
