"""Joint writes: operations on objects whose fragments lie on several systems.

Each object is written completely or not at all. Many objects go through the phases together, with
one call for each system and phase; an object that has another write's intent drops out, and is
tried alone.

A write of a single object that has its intent on the anchor keeps it, and waits for the other
fragments; a write without it removes its intents. So two writes neither wait for each other, nor
make each other start over for ever (docs/transactions.md, "Foreign intents").
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias
from uuid import uuid4
from weakref import WeakValueDictionary

from mediator.base.concurrency import concurrently, result_or_error, results_or_raise
from mediator.base.errors import (
    Locked,
    MediatorError,
    NotFound,
    PreconditionFailed,
    Unavailable,
)
from mediator.model.operations import (
    NEVER,
    Delete,
    Outcome,
    Put,
    ReadModifyWrite,
    Update,
    WriteOperation,
)
from mediator.operations.backoff import Backoff
from mediator.operations.calls import StoreCalls
from mediator.routing.model import ClassRoute
from mediator.transactions.applying import Answer
from mediator.transactions.log import State, TransactionEntry
from mediator.transactions.model import WriteBlocked
from mediator.transactions.phases import Phases
from mediator.transactions.plane import OperationPlane
from mediator.transactions.preparing import (
    PendingOperation,
    PreparedOperation,
    fit_steps,
    is_blind_put,
    plan_blind_put,
    prepare,
)
from mediator.transactions.redo import dump_operation
from mediator.transactions.reserving import ReserveResult, check_sizes, reserve
from mediator.transactions.resolver import TransactionResolver
from mediator.transactions.targets import LockedObject, LockTarget

__all__ = ["BLIND_BYTES", "CHUNK_BYTES", "CHUNK_OPERATIONS", "JointWriter", "RoutedWrite", "chunks"]

RoutedWrite: TypeAlias = tuple[ClassRoute, WriteOperation]
"""An operation and the route of its class."""

CHUNK_OPERATIONS: Final = 50
"""Objects that go through the phases together."""

CHUNK_BYTES: Final = 4 * 2**20
"""Approximate bytes that the operations of a chunk set; a larger operation is its own chunk."""

_REVISION_BYTES: Final = CHUNK_BYTES // 16
"""Assumed bytes of a read-modify-write: its values are known only once the object is read."""


def chunks(operations: Sequence[RoutedWrite]) -> list[Sequence[RoutedWrite]]:
    """Divide operations into chunks, in order, by number and size."""
    parts: list[Sequence[RoutedWrite]] = []
    start = size = 0
    for index, (_, operation) in enumerate(operations):
        operation_size = _size(operation)
        if index > start and (
            index - start == CHUNK_OPERATIONS or size + operation_size > CHUNK_BYTES
        ):
            parts.append(operations[start:index])
            start, size = index, 0
        size += operation_size
    return [*parts, operations[start:]] if operations else []


def _size(operation: WriteOperation) -> int:
    match operation:
        case Delete():
            return 0
        case ReadModifyWrite():
            return _REVISION_BYTES
        case Update():
            arguments = [call.argument for call in operation.operators]
            return _bytes_of(operation.values) + _bytes_of(arguments)
    return _bytes_of(operation.values)


def _bytes_of(value: Any) -> int:
    """Estimate the length of a value as JSON: mainly of texts and keys."""
    size, pending = 0, [value]
    while pending:
        current = pending.pop()
        size += 8
        if isinstance(current, str | bytes):
            size += len(current)
        elif isinstance(current, dict):
            size += sum(map(len, current))
            pending += current.values()
        elif isinstance(current, list | tuple):
            pending += current
    return size


BLIND_BYTES: Final = 2**16
"""Approximate limit of bytes of a blind write, which goes to each system twice."""

MAX_WAIT_S: Final = 2.0
"""How long a write retries while other writes hold its object."""

LOCK_TIMEOUT_S: Final = 10.0
"""How long a write waits for earlier ones of the same replica on its object."""

ALONE_AT_ONCE: Final = 16
"""How many objects are tried alone at a time."""

_AttemptResult: TypeAlias = Answer | WriteBlocked


@dataclass(eq=False)
class JointWriter:
    """Writes objects whose fragments lie on several systems."""

    _plane: OperationPlane
    _calls: StoreCalls
    _resolver: TransactionResolver
    _phases: Phases
    _object_locks: WeakValueDictionary[tuple[str, str, str], asyncio.Lock] = field(
        default_factory=WeakValueDictionary, init=False
    )

    async def write(self, route: ClassRoute, operation: WriteOperation) -> Outcome:
        """Execute one write.

        Raises:
            Locked: Other writes held the object all the time; nothing was done.
            OutcomeUnknown: It is committed, or may be; it is applied later.
            MediatorError: It cannot be done, and nothing was.
        """

        async def attempt(backoff: Backoff) -> Outcome:
            blind = is_blind_put(route, operation) and _size(operation) <= BLIND_BYTES
            if blind and not backoff.has_waited:
                # It continues if the caller is cancelled: once logged, it may happen.
                put = asyncio.create_task(self._put(route, operation))
                answer: _AttemptResult = await asyncio.shield(put)
            else:
                [answer] = await self._attempt([(route, operation)], backoff)
            if isinstance(answer, Outcome):
                return answer
            raise answer

        lock = await self._object_lock(route, operation)
        try:
            return await self._phases.until_free(attempt, MAX_WAIT_S)
        except WriteBlocked:
            name = f"{operation.class_name}/{operation.id}"
            raise Locked(f"Other writes hold {name}; nothing was done, try again.") from None
        finally:
            lock.release()

    async def recall(self, route: ClassRoute, operation: WriteOperation) -> Outcome | None:
        """Return the answer to the write that this one repeats; None: it has not happened.

        It sets intents to be certain: before they are set, an earlier attempt that was partly
        applied is resolved. Raises as `write`.
        """
        never = Put(*replace(operation, condition=NEVER).head)
        with suppress(NotFound, PreconditionFailed):
            return await self.write(route, never)
        return None

    async def _object_lock(self, route: ClassRoute, operation: WriteOperation) -> asyncio.Lock:
        """Serialise the writes of one object here, rather than by intents in its records.

        Returns:
            The lock of the object, acquired; the caller releases it.

        Raises:
            Unavailable: Earlier writes have held it all the time.
        """
        key = (operation.database, operation.class_name, operation.id)
        # Weak: the entry goes with the last write that holds the lock or waits for it.
        lock = self._object_locks.setdefault(key, new := asyncio.Lock())
        if lock is new:
            await lock.acquire()  # succeeds at once, without a timer
            return lock
        try:
            async with asyncio.timeout(LOCK_TIMEOUT_S):
                await lock.acquire()
        except TimeoutError:
            detail = "Earlier writes to the object have not ended; nothing was done."
            raise Unavailable(detail, system=route.anchor.system) from None
        return lock

    async def _put(self, route: ClassRoute, operation: WriteOperation) -> Answer:
        """Execute a blind write: it is logged with its steps, and its intents commit it.

        Raises:
            WriteBlocked: It did not get all its intents; it will not happen.
            OutcomeUnknown: The catalogue does not answer.
            MediatorError: It cannot be done.
        """
        target, intent = LockTarget(route, operation.id), uuid4().hex
        planned = plan_blind_put(target, operation, intent)
        redo = [dump_operation(planned)]
        records = [[route.schema.name, operation.id]]
        entry = TransactionEntry(intent, operation.database, records, state=State.STAGED, redo=redo)
        with self._phases.within(entry):
            try:
                locked = await self._lock_all(entry, target)
            except (MediatorError, WriteBlocked) as error:
                # Foreign intents are known only once all records have answered.
                refused = isinstance(error, WriteBlocked) and bool(error.foreign_intents)
                answers = await self._resolver.withdraw(entry, [target], refused=refused)
                if answers is None:
                    raise
                return answers[0]
            [answer] = await self._resolver.apply(entry, [fit_steps(planned, locked)])
            return answer

    async def _lock_all(self, entry: TransactionEntry, target: LockTarget) -> LockedObject:
        [locked] = results_or_raise(await self._phases.begin(entry, [target]))
        if not locked.has_all(entry.intent):
            raise WriteBlocked(locked.foreign(entry.intent))
        return locked

    async def write_each(self, operations: Sequence[RoutedWrite]) -> list[Answer]:
        """Execute writes of different objects of one database; each fails separately."""
        slots = asyncio.Semaphore(ALONE_AT_ONCE)
        # Chunks overlap: while the systems apply one, the next is prepared.
        answers = await concurrently(
            self._write_chunk(chunk, slots) for chunk in chunks(operations)
        )
        return [answer for chunk in answers for answer in chunk]

    async def _write_chunk(
        self, operations: Sequence[RoutedWrite], slots: asyncio.Semaphore
    ) -> list[Answer]:
        """Write objects together, and blocked ones alone."""
        results = await self._attempt(operations, None)

        async def write_alone(write: RoutedWrite) -> Answer:
            async with slots:
                return await result_or_error(self.write, *write)

        blocked = [
            o for o, a in zip(operations, results, strict=True) if isinstance(a, WriteBlocked)
        ]
        retried = iter(await asyncio.gather(*map(write_alone, blocked)))
        return [next(retried) if isinstance(result, WriteBlocked) else result for result in results]

    async def _attempt(
        self, operations: Sequence[RoutedWrite], backoff: Backoff | None
    ) -> list[_AttemptResult]:
        """Take operations through the phases once; with back-off, a single one."""
        targets = [LockTarget(route, operation.id) for route, operation in operations]
        records = [[target.route.schema.name, target.id] for target in targets]
        entry = TransactionEntry(uuid4().hex, operations[0][1].database, records)
        with self._phases.within(entry):
            try:
                results = await self._prepare(operations, targets, entry, backoff)
            except (MediatorError, WriteBlocked) as error:
                await self._resolver.abandon(entry, targets)
                return [error] * len(operations)
            except BaseException:
                await self._resolver.abandon(entry, targets)
                raise
            return await self._commit_prepared(entry, targets, results)

    async def _commit_prepared(
        self,
        entry: TransactionEntry,
        targets: Sequence[LockTarget],
        results: Sequence[PreparedOperation | _AttemptResult],
    ) -> list[_AttemptResult]:
        """Commit the operations with steps; the other objects stay unchanged."""
        prepared = [result for result in results if isinstance(result, PreparedOperation)]
        if not prepared:
            await self._resolver.abandon(entry, targets)
            return [result for result in results if not isinstance(result, PreparedOperation)]
        pairs = zip(targets, results, strict=True)
        dropped = [target for target, result in pairs if not isinstance(result, PreparedOperation)]
        await self._resolver.release(dropped, entry.intent)
        answers = iter(await self._commit(entry, prepared))
        return [
            next(answers) if isinstance(result, PreparedOperation) else result for result in results
        ]

    async def _prepare(
        self,
        operations: Sequence[RoutedWrite],
        targets: Sequence[LockTarget],
        entry: TransactionEntry,
        backoff: Backoff | None,
    ) -> list[PreparedOperation | _AttemptResult]:
        """Set the intents, and turn operations into steps, answers or errors."""
        await self._phases.delete_expired(targets)
        anchor_first = backoff is not None and backoff.has_waited
        objects = await self._phases.begin(entry, targets, anchor_first=anchor_first)
        if backoff is not None:
            objects = [await self._wait_for_fragments(objects[0], entry.intent, backoff)]
        results: list[PreparedOperation | _AttemptResult | PendingOperation] = [
            self._pending(operation, locked, entry.intent)
            for (_, operation), locked in zip(operations, objects, strict=True)
        ]
        await self._replay(operations, results)
        pending = [result for result in results if isinstance(result, PendingOperation)]
        intents = self._resolver.intents
        steps = await prepare(pending, entry.intent, self._calls)
        steps = await check_sizes(pending, steps, intents)
        prepared = iter(await reserve(steps, self._calls, intents))
        return [
            _outcome_or_operation(next(prepared))
            if isinstance(result, PendingOperation)
            else result
            for result in results
        ]

    async def _wait_for_fragments(
        self, locked: LockedObject | MediatorError, intent: str, backoff: Backoff
    ) -> LockedObject | MediatorError:
        """Keep an object whose anchor has our intent, and wait for its other fragments."""
        while isinstance(locked, LockedObject) and not backoff.is_exhausted:
            foreign = locked.foreign(intent)
            if not foreign or locked.fragments[locked.target.route.anchor].intent != intent:
                break
            await backoff.wait_for(foreign, self._resolver)
            keys = [key for records in foreign.values() for key in records]
            states = zip(keys, await self._resolver.intents.lock(keys, intent), strict=True)
            locked_now = {fragment: state for (fragment, _), state in states}
            locked = replace(locked, fragments={**locked.fragments, **locked_now})
        return locked

    def _pending(
        self, operation: WriteOperation, locked: LockedObject | MediatorError, intent: str
    ) -> PendingOperation | MediatorError | WriteBlocked:
        """Return the operation if its object has all our intents; else the error."""
        if isinstance(locked, MediatorError):
            return locked
        if not locked.has_all(intent) or self._phases.has_expired(locked):
            return WriteBlocked(locked.foreign(intent))
        return PendingOperation(operation, locked)

    async def _replay(
        self,
        operations: Sequence[RoutedWrite],
        results: list[PreparedOperation | _AttemptResult | PendingOperation],
    ) -> None:
        """Answer keyed operations that have happened, which their intents make certain."""
        keyed = [
            i
            for i, result in enumerate(results)
            if isinstance(result, PendingOperation)
            and result.operation.fingerprint
            and result.locked.is_known
        ]
        answers = await concurrently(
            result_or_error(self._plane.stored_outcome, *operations[i]) for i in keyed
        )
        for i, answer in zip(keyed, answers, strict=True):
            results[i] = answer or results[i]

    async def _commit(
        self, entry: TransactionEntry, prepared: Sequence[PreparedOperation]
    ) -> Sequence[_AttemptResult]:
        try:
            answers = await self._phases.commit(entry, prepared)
        except (MediatorError, WriteBlocked) as error:
            return [error] * len(prepared)
        # Even if another replica applied its steps, it is this write that happened.
        return [
            replace(answer, replayed=False)
            if isinstance(answer, Outcome) and answer.replayed
            else answer
            for answer in answers
        ]


def _outcome_or_operation(operation: ReserveResult) -> PreparedOperation | _AttemptResult:
    if isinstance(operation, PreparedOperation) and operation.outcome is not None:
        return operation.outcome
    return operation
