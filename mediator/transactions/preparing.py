"""Preparing operations: from locked objects to steps that can no longer fail.

All reasons to refuse an operation are checked now: once the write is committed, it must happen. So
the only condition of a step is the intent. A step that replaces an existing record says so: under
the intent the record stays, and the store need not check (docs/transactions.md, "How it works").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mediator.base.concurrency import results_or_raise
from mediator.base.errors import MediatorError
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
from mediator.operations.merge import (
    check_if_match,
    computed_values,
    failure_of,
    if_match_error,
    merge_records,
    narrow_to_creation,
)
from mediator.operations.read_modify_write import alternative, update_of
from mediator.routing.fragments import Steps, is_partial, plan_read, plan_write
from mediator.routing.model import ClassRoute
from mediator.schema.types import Values
from mediator.stores.port import Fragment, Read, Record, Status, Write, WriteKind, WriteResult
from mediator.transactions.targets import LockedObject, LockTarget

__all__ = [
    "PendingOperation",
    "PreparedOperation",
    "fit_steps",
    "is_blind_put",
    "plan_blind_put",
    "prepare",
]


@dataclass(frozen=True, slots=True)
class PendingOperation:
    """An operation to prepare, whose object is locked by the intents of the write.

    `was_read`: the object is in the read set, which counts as If-Match.
    """

    operation: WriteOperation
    locked: LockedObject
    was_read: bool = False


@dataclass(frozen=True, slots=True)
class PreparedOperation:
    """The steps of one operation on an object, or its outcome if it has none."""

    target: LockTarget
    steps: Steps | None
    outcome: Outcome | None = None


def is_blind_put(route: ClassRoute, operation: WriteOperation) -> bool:
    """Whether an operation is a blind write: a put that any state of its object allows.

    A put with an Idempotency-Key may have happened before, an expired object may have to be removed
    first, and another object may have the unique values: such puts are not blind.
    """
    return (
        isinstance(operation, Put)
        and operation.condition == ANYTHING
        and operation.fingerprint is None
        and not route.schema.require_if_match
        and route.anchor.ttl_s is None
        and not route.schema.unique_constraints
    )


def plan_blind_put(target: LockTarget, operation: WriteOperation, intent: str) -> PreparedOperation:
    """Return the steps of a blind write, while its object is unknown.

    The first step creates the object, if missing; the others are bound to its creation version.
    """
    route = target.route
    steps = Steps.of(
        write.with_intent(intent, creation_version=None, remember=_fingerprint_of(write, route))
        for write in plan_write(route, operation, {}).all
    )
    return PreparedOperation(target, steps)


def fit_steps(planned: PreparedOperation, locked: LockedObject) -> PreparedOperation:
    """Fit planned steps to their locked object, so that all can be sent at once."""
    assert planned.steps is not None
    steps = Steps.of(_step(write, locked, {}, write.intent) for write in planned.steps.all)
    return PreparedOperation(planned.target, steps)


async def prepare(
    pending: Sequence[PendingOperation], intent: str, calls: StoreCalls
) -> list[PreparedOperation | MediatorError]:
    """Turn operations into steps, with one read call for each system.

    Returns:
        The steps of each operation, or the error it would get alone.
    """
    checked = [_check_and_remove_condition(operation) for operation in pending]
    reads = [
        () if isinstance(operation, MediatorError) else _reads(operation) for operation in checked
    ]
    all_reads = [read for operation_reads in reads for read in operation_reads]
    records = iter(await calls.read_each(all_reads) if all_reads else ())
    prepared: list[PreparedOperation | MediatorError] = []
    for operation, operation_reads in zip(checked, reads, strict=True):
        operation_records = [next(records) for _ in operation_reads]
        prepared.append(
            operation
            if isinstance(operation, MediatorError)
            else _prepare_one(operation, operation_records, intent)
        )
    return prepared


def _check_and_remove_condition(pending: PendingOperation) -> PendingOperation | MediatorError:
    """Check the conditions of an operation, and remove them."""
    operation, locked = pending.operation, pending.locked
    try:
        if not pending.was_read:
            check_if_match(locked.target.route, operation)
            operation = narrow_to_creation(locked.target.route, operation)
        _check_condition(operation, locked)
    except MediatorError as error:
        if operation is not pending.operation:  # narrowed to a creation, as If-Match is required
            return if_match_error(operation)
        return error
    if operation.condition is ANYTHING:
        return pending if operation is pending.operation else replace(pending, operation=operation)
    return replace(pending, operation=replace(operation, condition=ANYTHING))


def _check_condition(operation: WriteOperation, locked: LockedObject) -> None:
    """Raise the error that a store would return."""
    exists = locked.creation_version is not None
    condition = operation.condition
    status: Status | None = None
    if isinstance(operation, Create) or (isinstance(operation, Put) and condition.present is False):
        status = Status.EXISTS if exists else None
    elif not exists and (not isinstance(operation, Put) or condition.present):
        status = Status.MISSING
    elif condition.versions and alternative(condition, locked.versions) is None:
        status = Status.CONFLICT if exists else Status.MISSING
    if status is not None:
        failure = failure_of(operation, WriteResult(status))
        assert failure is not None
        raise failure


def _reads(pending: PendingOperation) -> tuple[Read, ...]:
    """Return the reads of the object: all of it, or the fields of operators."""
    operation, locked = pending.operation, pending.locked
    if not isinstance(operation, ReadModifyWrite | Update):
        return ()
    if isinstance(operation, ReadModifyWrite) or _reads_whole(locked, operation):
        return plan_read(locked.target.route, _get_all(operation))
    if not operation.operators:
        return ()
    by_fragment: dict[Fragment, list[str]] = {}
    route = locked.target.route
    route.require(call.field for call in operation.operators)
    for call in operation.operators:
        fragment = route.fragment_of[call.field]
        by_fragment.setdefault(fragment, []).append(call.field)
    return tuple(Read(f, operation.id, tuple(names)) for f, names in by_fragment.items())


def _reads_whole(locked: LockedObject, operation: Update) -> bool:
    return operation.is_empty or is_partial(locked.target.route, operation)


def _get_all(operation: WriteOperation) -> Get:
    return Get(operation.database, operation.class_name, operation.id)


def _prepare_one(
    pending: PendingOperation, records: Sequence[Record | MediatorError | None], intent: str
) -> PreparedOperation | MediatorError:
    try:
        fragments = results_or_raise(records)
        operation = _as_update(pending, fragments)
        if isinstance(operation, Outcome):
            return PreparedOperation(pending.locked.target, None, operation)
        current = _values(pending.locked, fragments)
        steps = _steps(operation, pending.locked, current, intent)
        return PreparedOperation(pending.locked.target, steps)
    except MediatorError as error:
        return error


def _as_update(
    pending: PendingOperation, records: Sequence[Record | None]
) -> WriteOperation | Outcome:
    """Turn a read-modify-write into an update, or into the unchanged object if it has no effect.

    With a key it stays an update, so that its answer is remembered.
    """
    operation, route = pending.operation, pending.locked.target.route
    if not isinstance(operation, ReadModifyWrite | Update):
        return operation
    if isinstance(operation, Update) and not _reads_whole(pending.locked, operation):
        return operation
    current = merge_records(route, _get_all(operation), records)
    assert current is not None
    update = update_of(route, operation, current)
    return current if update.is_void else update


def _values(locked: LockedObject, records: Sequence[Record | None]) -> Values:
    """Return the values read from fragments that the object has."""
    values: Values = {}
    for record in records:
        if record is not None and record.creation_version == locked.creation_version:
            values |= record.values
    return values


def _steps(operation: WriteOperation, locked: LockedObject, current: Values, intent: str) -> Steps:
    planned = plan_write(locked.target.route, operation, {}).all
    if isinstance(operation, Delete):
        # A fragment without a record has only its intent, which the release removes.
        planned = tuple(
            w for w in planned if locked.fragments[w.fragment].creation_version is not None
        )
    elif isinstance(operation, Update) and operation.is_empty:
        # A fragment that the object lacks has no answer to remember, and must not be created.
        planned = tuple(w for w in planned if not locked.lacks(w.fragment))
    return Steps.of(_step(write, locked, current, intent) for write in planned)


def _fingerprint_of(write: Write, route: ClassRoute) -> str | None:
    """Return the fingerprint under which a store records the result of a step; None: not recorded.

    The result is needed even after another replica has applied the step if the store computes
    values; or for its versions, if the view may return a copy that lacks them.
    """
    if write.remember is not None:
        return write.remember
    is_needed = write.returning is not None or route.copy is not None
    return "" if is_needed else None


def _step(write: Write, locked: LockedObject, current: Values, intent: str) -> Write:
    """Fit a write to the object: an update of a fragment that it lacks creates the fragment."""
    remember = _fingerprint_of(write, locked.target.route)
    if write.kind is WriteKind.REPLACE:
        follows = write.fragment is not locked.target.route.anchor
        exists = locked.fragments[write.fragment].creation_version is not None
        creation_version = locked.creation_version if follows else None
        return write.with_intent(
            intent, creation_version=creation_version, remember=remember, is_present=exists
        )
    if write.kind is not WriteKind.UPDATE:
        return write.with_intent(intent, creation_version=None, remember=remember)
    computed = computed_values(write.fragment.fields, write.operators, current)
    if not locked.lacks(write.fragment):
        return write.with_intent(intent, creation_version=write.creation_version, remember=remember)
    return replace(
        write,
        kind=WriteKind.REPLACE,
        groups=tuple(write.fragment.groups),
        values={**write.values, **computed},
        unset=(),
        operators=(),
        creation_version=locked.creation_version,
        remember=remember,
        intent=intent,
    )
