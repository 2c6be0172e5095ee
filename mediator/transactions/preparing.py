"""From the write set to steps that cannot fail any more: its objects are marked, and stay so.

Whatever could refuse an operation is looked at now: once the transaction is committed, it must
happen. So the steps have no conditions but the mark.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from mediator.operations.apply import Refused, apply_operator
from mediator.operations.calls import StoreCalls
from mediator.operations.if_match import asked_for, check_if_match
from mediator.operations.merge import failure_of, refusal_of
from mediator.operations.model import (
    ANYTHING,
    Create,
    Delete,
    Get,
    Outcome,
    Put,
    Revise,
    Update,
    WriteOperation,
)
from mediator.operations.parts import check_operators
from mediator.operations.plan import Steps, plan_write
from mediator.operations.revise import revised
from mediator.placement.routing import ClassRoute
from mediator.schema.tree import MISSING, MissingType
from mediator.stores.port import Status, Write, WriteKind, WriteResult
from mediator.transactions.places import Held

__all__ = ["Work", "prepare"]


@dataclass(frozen=True, slots=True)
class Work:
    """What one operation of the write set comes to.

    Attributes:
        route: Where its class lives; None: nowhere any more, so nothing is to be applied.
        steps: What is to be applied; None: nothing.
        outcome: The answer, if nothing is to be applied.
    """

    route: ClassRoute | None
    steps: Steps | None
    outcome: Outcome | None = None


async def prepare(
    operation: WriteOperation,
    held: Held,
    *,
    was_read: bool,
    mark: str,
    calls: StoreCalls,
    read: Callable[[ClassRoute, Get], Awaitable[Outcome]],
) -> Work:
    """Turn an operation into steps.

    Args:
        operation: The operation.
        held: Its object, marked.
        was_read: Whether the object is in the read set, which is as good as If-Match.
        mark: The mark.
        calls: Sends store calls.
        read: Reads an object as it is now.

    Raises:
        MediatorError: Why it cannot be applied, as if it came alone.
    """
    if not was_read:
        check_if_match(held.route, operation)
        operation = asked_for(held.route, operation)
    _check_condition(operation, held)
    if isinstance(operation, Revise | Update):
        update = await _as_update(operation, held, read)
        if isinstance(update, Outcome):
            return Work(held.route, None, update)
        operation = update
    steps = _steps(replace(operation, condition=ANYTHING), held, mark)
    updates = [write for write in steps.all if write.kind is WriteKind.UPDATE]
    await check_operators(calls, updates)
    return Work(held.route, steps)


def _check_condition(operation: WriteOperation, held: Held) -> None:
    """Raise what a store would answer."""
    there = held.birth is not None
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


def _matches(operation: WriteOperation, held: Held) -> bool:
    current = held.versions
    return any(
        all(current.get(group) == version for group, version in alternative.items())
        for alternative in operation.condition.versions
    )


async def _as_update(
    operation: Revise | Update,
    held: Held,
    read: Callable[[ClassRoute, Get], Awaitable[Outcome]],
) -> Update | Outcome:
    """Compute what a revision changes; the object as it is, if nothing."""
    if isinstance(operation, Update) and not operation.is_empty:
        return operation
    whole = Get(operation.database, operation.class_name, operation.id)
    current = await read(held.route, whole)
    if isinstance(operation, Update):
        return current
    update = revised(held.route, operation, current)
    return current if update.is_empty else update


def _steps(operation: WriteOperation, held: Held, mark: str) -> Steps:
    planned = plan_write(held.route, operation, {}).all
    if isinstance(operation, Delete):
        # A part that is not there has nothing to be deleted, but its mark.
        planned = tuple(w for w in planned if held.parts[w.fragment].birth is not None)
    remember = operation.fingerprint or ""
    first, *rest = (
        replace(_fitting(write, held), remember=remember, mark=mark) for write in planned
    )
    return Steps(first, tuple(rest))


def _fitting(write: Write, held: Held) -> Write:
    """Make the part that an update needs of what the update sets, if the object lacks it."""
    if write.kind is not WriteKind.UPDATE or not held.lacks(write.fragment):
        return write
    values = dict(write.values)
    now = datetime.now(UTC)
    for call in write.operators:
        try:
            result = apply_operator(write.fragment.fields[call.field], MISSING, call, now)
        except Refused as refused:
            raise refusal_of(refused.failure) from refused
        if not isinstance(result, MissingType):
            values[call.field] = result
    return replace(
        write,
        kind=WriteKind.REPLACE,
        groups=tuple(write.fragment.groups),
        values=values,
        unset=(),
        operators=(),
        birth=held.birth,
    )
