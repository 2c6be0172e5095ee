"""Upserts: a patch of an object that is created first if it does not exist.

The patch is sent, and, if there is no object, the creation of what it makes of one that has only
its defaults; if another client was faster with that, the patch once more. Both have one operation
id: of several attempts under a key one takes effect, and the others get its answer.
"""

from __future__ import annotations

from datetime import UTC, datetime

from app.api.submission import submit
from app.api.writes import PlannedOperation, WriteTarget, build_create
from mediator.base.errors import AlreadyExists, Conflict, NotFound
from mediator.data_plane.port import DataPlane
from mediator.model.apply import OperatorFailed, apply_operator
from mediator.model.operations import Outcome, ReadModifyWrite, Update
from mediator.operations.merge import refusal_of
from mediator.operations.read_modify_write import ATTEMPTS
from mediator.schema.tree import MISSING, ClassSchema, MissingType
from mediator.schema.types import Values

__all__ = ["created_by", "upsert"]


async def upsert(
    plane: DataPlane, patch: PlannedOperation, target: WriteTarget
) -> tuple[PlannedOperation, Outcome]:
    """Patch an object, or create it; returns which of them took effect, and its outcome.

    Raises:
        Invalid: There is no object, and a required field is neither set nor has a default.
        Conflict: Others keep creating and deleting the object.
    """
    for _ in range(ATTEMPTS):
        try:
            return patch, await submit(plane, patch)
        except NotFound:
            creation = created_by(patch, target)
        try:
            return creation, await submit(plane, creation)
        except AlreadyExists:
            continue
    raise Conflict("The object is being created and deleted all the time; try again.")


def created_by(patch: PlannedOperation, target: WriteTarget) -> PlannedOperation:
    """Return the creation of what a patch makes of an object that has only its defaults."""
    codec, operation = target.resource.codec, patch.operation
    document = codec.defaults()
    if isinstance(operation, ReadModifyWrite):
        document = operation.compute(document)
    else:
        assert isinstance(operation, Update)
        # Every creation sets the time of the write itself.
        defaults = {name: value for name, value in document.items() if name != codec.updated}
        values = _updated(target.resource.schema, codec.decode_fields(defaults), operation)
        document = codec.encode(values)
    given = {name: value for name, value in document.items() if name != codec.updated}
    return build_create(target, given)


def _updated(schema: ClassSchema, defaults: Values, update: Update) -> Values:
    kept = {name: value for name, value in defaults.items() if name not in update.unset}
    values = {**kept, **update.values}
    now = datetime.now(UTC)
    for call in update.operators:
        before = values.pop(call.field, MISSING)
        try:
            result = apply_operator(schema.fields[call.field], before, call, now)
        except OperatorFailed as refused:
            raise refusal_of(refused.failure) from refused
        if not isinstance(result, MissingType):
            values[call.field] = result
    return values
