"""From operations to steps that cannot fail any more: their objects are held, and stay as they are.

Whatever could refuse an operation is looked at now: once the write is committed, it must happen. So
the steps have no conditions but the intent. One that replaces a record that is there says so: it
stays there under the intent, and a store that is told need not look.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from mediator.base.errors import MediatorError
from mediator.model.apply import Refused, apply_operator
from mediator.model.operations import (
    ANYTHING,
    Create,
    Delete,
    Get,
    Outcome,
    Put,
    ReadModifyWrite,
    Update,
    WriteOperation,
)
from mediator.operations.calls import StoreCalls
from mediator.operations.if_match import check_if_match, if_match_error, narrow_to_creation
from mediator.operations.merge import failure_of, merge_records, refusal_of
from mediator.operations.read_modify_write import update_of
from mediator.routing.fragments import Steps, plan_read, plan_write
from mediator.schema.tree import MISSING, MissingType
from mediator.schema.types import Values
from mediator.stores.port import Fragment, Read, Record, Status, Write, WriteKind, WriteResult
from mediator.transactions.targets import LockedObject, Target

__all__ = ["PendingOperation", "PreparedOperation", "prepare"]


@dataclass(frozen=True, slots=True)
class PendingOperation:
    """An operation, and its object.

    Attributes:
        operation: The operation.
        held: Its object, under the intents of the write.
        was_read: Whether the object is in the read set, which is as good as If-Match.
    """

    operation: WriteOperation
    held: LockedObject
    was_read: bool = False


@dataclass(frozen=True, slots=True)
class PreparedOperation:
    """What one operation comes to.

    Attributes:
        target: Its object.
        steps: What is to be applied; None: nothing.
        outcome: The answer, if nothing is to be applied.
    """

    target: Target
    steps: Steps | None
    outcome: Outcome | None = None


async def prepare(
    asked: Sequence[PendingOperation], intent: str, calls: StoreCalls
) -> list[PreparedOperation | MediatorError]:
    """Turn operations into steps; what has to be read for it is read with one call per system.

    Args:
        asked: The operations.
        intent: The intent of the write.
        calls: Sends store calls.

    Returns:
        What each comes to, or why it cannot be applied, as if it came alone.
    """
    narrowed = [_narrowed(one) for one in asked]
    reads = [() if isinstance(one, MediatorError) else _reads(one) for one in narrowed]
    wanted = [read for own in reads for read in own]
    records = iter(await calls.read_each(wanted) if wanted else ())
    prepared: list[PreparedOperation | MediatorError] = []
    for one, own in zip(narrowed, reads, strict=True):
        found = [next(records) for _ in own]
        prepared.append(one if isinstance(one, MediatorError) else _prepare_one(one, found, intent))
    return prepared


def _narrowed(asked: PendingOperation) -> PendingOperation | MediatorError:
    """Look at the conditions of an operation, and take them away."""
    operation, held = asked.operation, asked.held
    try:
        if not asked.was_read:
            check_if_match(held.target.route, operation)
            operation = narrow_to_creation(held.target.route, operation)
        _check_condition(operation, held)
    except MediatorError as error:
        if operation is not asked.operation:  # it may only create, where If-Match is asked for
            return if_match_error(operation)
        return error
    if operation.condition is ANYTHING:
        return asked if operation is asked.operation else replace(asked, operation=operation)
    return replace(asked, operation=replace(operation, condition=ANYTHING))


def _check_condition(operation: WriteOperation, held: LockedObject) -> None:
    """Raise what a store would answer."""
    there = held.creation_version is not None
    condition = operation.condition
    status: Status | None = None
    if isinstance(operation, Create) or (isinstance(operation, Put) and condition.present is False):
        status = Status.EXISTS if there else None
    elif not there and (not isinstance(operation, Put) or condition.present):
        status = Status.MISSING
    elif condition.versions and not _matches(operation, held):
        status = Status.CONFLICT if there else Status.MISSING
    if status is not None:
        failure = failure_of(operation, WriteResult(status))
        assert failure is not None
        raise failure


def _matches(operation: WriteOperation, held: LockedObject) -> bool:
    current = held.versions
    return any(
        all(current.get(group) == version for group, version in alternative.items())
        for alternative in operation.condition.versions
    )


def _reads(asked: PendingOperation) -> tuple[Read, ...]:
    """Return what has to be read of the object: all of it, or what operators are applied to."""
    operation, held = asked.operation, asked.held
    if not isinstance(operation, ReadModifyWrite | Update):
        return ()
    if isinstance(operation, ReadModifyWrite) or operation.is_empty:
        return plan_read(held.target.route, _whole(operation))
    if not operation.operators:
        return ()
    by_fragment: dict[Fragment, list[str]] = {}
    for call in operation.operators:
        fragment = held.target.route.fragment_of[call.field]
        by_fragment.setdefault(fragment, []).append(call.field)
    return tuple(Read(f, operation.id, tuple(names)) for f, names in by_fragment.items())


def _whole(operation: WriteOperation) -> Get:
    return Get(operation.database, operation.class_name, operation.id)


def _prepare_one(
    asked: PendingOperation, records: Sequence[Record | MediatorError | None], intent: str
) -> PreparedOperation | MediatorError:
    found: list[Record | None] = []
    for record in records:
        if isinstance(record, MediatorError):
            return record
        found.append(record)
    try:
        operation = _as_update(asked, found)
        if isinstance(operation, Outcome):
            return PreparedOperation(asked.held.target, None, operation)
        current = _values(asked.held, found)
        return PreparedOperation(asked.held.target, _steps(operation, asked.held, current, intent))
    except MediatorError as error:
        return error


def _as_update(
    asked: PendingOperation, records: Sequence[Record | None]
) -> WriteOperation | Outcome:
    """Compute what a revision changes; the object as it is, if nothing."""
    operation, route = asked.operation, asked.held.target.route
    if not isinstance(operation, ReadModifyWrite | Update):
        return operation
    if isinstance(operation, Update) and not operation.is_empty:
        return operation
    current = merge_records(route, _whole(operation), records)
    assert current is not None
    if isinstance(operation, Update):
        return current
    update = update_of(route, operation, current)
    return current if update.is_empty else update


def _values(held: LockedObject, records: Sequence[Record | None]) -> Values:
    """Return the values read, of fragments that the object does not lack."""
    values: Values = {}
    for record in records:
        if record is not None and record.creation_version == held.creation_version:
            values |= record.values
    return values


def _steps(operation: WriteOperation, held: LockedObject, current: Values, intent: str) -> Steps:
    planned = plan_write(held.target.route, operation, {}).all
    if isinstance(operation, Delete):
        # A fragment that is not there has nothing to be deleted, but its intent.
        planned = tuple(
            w for w in planned if held.fragments[w.fragment].creation_version is not None
        )
    first, *rest = [_fitting(write, held, current, intent) for write in planned]
    return Steps(first, tuple(rest))


def _remembered(write: Write, held: LockedObject) -> str | None:
    """Let a store keep a result that is needed even if somebody else has applied the step.

    That is what it computed; and the versions, where a copy may be read that has not got them yet.
    """
    if write.remember is not None:
        return write.remember
    is_needed = write.returning is not None or held.target.route.copy is not None
    return "" if is_needed else None


def _fitting(write: Write, held: LockedObject, current: Values, intent: str) -> Write:
    """Fit a step to the object: what an update would not find is made of what the update sets."""
    remember = _remembered(write, held)
    if write.kind is WriteKind.REPLACE:
        follows = write.fragment is not held.target.route.anchor
        is_there = held.fragments[write.fragment].creation_version is not None
        creation_version = held.creation_version if follows else None
        return write.with_intent(
            intent, creation_version=creation_version, remember=remember, is_present=is_there
        )
    if write.kind is not WriteKind.UPDATE:
        return write.with_intent(intent, creation_version=None, remember=remember)
    computed = _computed(write, current)
    if not held.lacks(write.fragment):
        return write.with_intent(intent, creation_version=write.creation_version, remember=remember)
    return replace(
        write,
        kind=WriteKind.REPLACE,
        groups=tuple(write.fragment.groups),
        values={**write.values, **computed},
        unset=(),
        operators=(),
        creation_version=held.creation_version,
        remember=remember,
        intent=intent,
    )


def _computed(write: Write, current: Values) -> Values:
    """Try the operators of a step, as its store will: raises what would refuse one."""
    values: Values = {}
    now = datetime.now(UTC)
    for call in write.operators:
        try:
            before = current.get(call.field, MISSING)
            result = apply_operator(write.fragment.fields[call.field], before, call, now)
        except Refused as refused:
            raise refusal_of(refused.failure) from refused
        if not isinstance(result, MissingType):
            values[call.field] = result
    return values
