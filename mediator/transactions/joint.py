"""Joint writes: operations on objects whose fragments lie on several systems.

Each object is written as a whole or not at all. Many objects go through the phases together, with
one call for each system and phase; an object on which somebody else is at work drops out, and is
tried alone.

Whoever writes a single object and has its anchor keeps it, and waits for the other fragments; who
has not got the anchor takes its intents back. So two of them neither wait for each other, nor send
each other away for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final, TypeAlias
from uuid import uuid4
from weakref import WeakValueDictionary

from mediator.base.concurrency import concurrently
from mediator.base.errors import Locked, MediatorError, Unavailable
from mediator.model.operations import Outcome, WriteOperation
from mediator.operations.backoff import Backoff
from mediator.operations.calls import StoreCalls
from mediator.routing.model import ClassRoute
from mediator.transactions.applying import Answer
from mediator.transactions.chunks import RoutedWrite, chunks
from mediator.transactions.log import Entry
from mediator.transactions.model import Blocked
from mediator.transactions.phases import Phases
from mediator.transactions.preparing import PendingOperation, PreparedOperation, prepare
from mediator.transactions.recovery import OperationPlane, TransactionResolver
from mediator.transactions.targets import LockedObject, Target

__all__ = ["JointWriter"]

MAX_WAIT_S: Final = 2.0
"""How long a write tries to get past others."""

LOCK_TIMEOUT_S: Final = 10.0
"""How long a write waits for others of the same replica on its object."""

ALONE_AT_ONCE: Final = 16
"""Objects that are tried alone at the same time."""

_Attempted: TypeAlias = Answer | Blocked


class _LockTimeout(Exception):
    """Others of the same replica were before it all the time."""


class JointWriter:
    """Writes objects whose fragments lie on several systems; implements `JointWrites`.

    Args:
        plane: Carries out single operations.
        calls: Sends store calls.
        resolver: Applies what is committed, and resolves what is met.
        phases: What a write goes through.
    """

    def __init__(
        self,
        plane: OperationPlane,
        calls: StoreCalls,
        resolver: TransactionResolver,
        phases: Phases,
    ) -> None:
        self._plane = plane
        self._calls = calls
        self._resolver = resolver
        self._phases = phases
        self._object_locks = WeakValueDictionary[tuple[str, str, str], asyncio.Lock]()

    async def write(self, route: ClassRoute, operation: WriteOperation) -> Outcome:
        """Carry out one write.

        Raises:
            Locked: Others were at work on the object all the time; nothing was done.
            OutcomeUnknown: It is committed, or may be; what it writes follows.
            MediatorError: It cannot be done, and nothing was.
        """

        async def attempt(backoff: Backoff) -> Outcome:
            [answer] = await self._try([(route, operation)], backoff)
            if isinstance(answer, Outcome):
                return answer
            raise answer

        try:
            async with self._object_lock(operation):
                return await self._phases.until_free(attempt, MAX_WAIT_S)
        except _LockTimeout:
            detail = "Earlier writes to the object have not come to an end; nothing was done."
            raise Unavailable(detail, system=route.anchor.system) from None
        except Blocked:
            name = f"{operation.class_name}/{operation.id}"
            raise Locked(f"Others are at work on {name}; nothing was done, try again.") from None

    @asynccontextmanager
    async def _object_lock(self, operation: WriteOperation) -> AsyncIterator[None]:
        """Let writes of one object begin one after the other here, rather than meet in its records.

        Raises:
            _LockTimeout: There were too many before it.
        """
        key = (operation.database, operation.class_name, operation.id)
        turn = self._object_locks.setdefault(key, asyncio.Lock())
        try:
            async with asyncio.timeout(LOCK_TIMEOUT_S):
                await turn.acquire()
        except TimeoutError:
            raise _LockTimeout from None
        try:
            yield
        finally:
            turn.release()

    async def write_each(self, operations: Sequence[RoutedWrite]) -> list[Answer]:
        """Carry out writes of different objects of one database; each fails by itself."""
        slots = asyncio.Semaphore(ALONE_AT_ONCE)
        answers = await concurrently(self._write_wave(chunk, slots) for chunk in chunks(operations))
        return [answer for chunk in answers for answer in chunk]

    async def _write_wave(
        self, operations: Sequence[RoutedWrite], slots: asyncio.Semaphore
    ) -> list[Answer]:
        tried = await self._try(operations, None)

        async def alone(routed: RoutedWrite) -> Answer:
            async with slots:
                try:
                    return await self.write(*routed)
                except MediatorError as error:
                    return error

        blocked = [r for r, t in zip(operations, tried, strict=True) if isinstance(t, Blocked)]
        again = iter(await asyncio.gather(*map(alone, blocked)))
        return [next(again) if isinstance(one, Blocked) else one for one in tried]

    async def _try(
        self, operations: Sequence[RoutedWrite], backoff: Backoff | None
    ) -> list[_Attempted]:
        """Take operations through the phases once; with backoff, a single one."""
        targets = [Target(route, operation.id) for route, operation in operations]
        places = [[target.route.schema.name, target.id] for target in targets]
        entry = Entry(uuid4().hex, operations[0][1].database, places)
        try:
            decided = await self._decide(operations, targets, entry, backoff)
        except (MediatorError, Blocked) as error:
            await self._resolver.abandon(entry, targets)
            return [error] * len(operations)
        except BaseException:
            await self._resolver.abandon(entry, targets)
            raise
        prepared = [one for one in decided if isinstance(one, PreparedOperation)]
        if not prepared:
            await self._resolver.abandon(entry, targets)
            return [one for one in decided if not isinstance(one, PreparedOperation)]
        dropped = [
            t for t, d in zip(targets, decided, strict=True) if not isinstance(d, PreparedOperation)
        ]
        await self._resolver.release(dropped, entry.intent)
        answers = iter(await self._commit(entry, prepared))
        return [next(answers) if isinstance(one, PreparedOperation) else one for one in decided]

    async def _decide(
        self,
        operations: Sequence[RoutedWrite],
        targets: Sequence[Target],
        entry: Entry,
        backoff: Backoff | None,
    ) -> list[PreparedOperation | _Attempted]:
        """Set the intents, and find out what the operations come to and whether they may."""
        await self._phases.end_expired(targets)
        waits = backoff is not None and backoff.has_waited
        begun = await self._phases.begin(entry, targets, anchor_first=waits)
        if backoff is not None:
            begun = [await self._wait_for_fragments(begun[0], entry.intent, backoff)]
        decided: list[PreparedOperation | _Attempted | PendingOperation] = [
            self._asked(operation, held, entry.intent)
            for (_, operation), held in zip(operations, begun, strict=True)
        ]
        await self._recall(operations, decided)
        asked = [one for one in decided if isinstance(one, PendingOperation)]
        prepared = iter(await prepare(asked, entry.intent, self._calls))
        return [
            _answered(next(prepared)) if isinstance(one, PendingOperation) else one
            for one in decided
        ]

    async def _wait_for_fragments(
        self, held: LockedObject | MediatorError, intent: str, backoff: Backoff
    ) -> LockedObject | MediatorError:
        """Keep an object whose anchor is ours, and wait for its other fragments."""
        while isinstance(held, LockedObject) and not backoff.is_exhausted:
            foreign = held.foreign(intent)
            if not foreign or held.fragments[held.target.route.anchor].intent != intent:
                break
            await backoff.wait_for(foreign, self._resolver)
            keys = [key for own in foreign.values() for key in own]
            again = zip(keys, await self._resolver.intents.lock(keys, intent), strict=True)
            now = {fragment: standing for (fragment, _), standing in again}
            held = replace(held, fragments={**held.fragments, **now})
        return held

    def _asked(
        self, operation: WriteOperation, held: LockedObject | MediatorError, intent: str
    ) -> PendingOperation | MediatorError | Blocked:
        """Tell an object that is ours from one on which others are at work."""
        if isinstance(held, MediatorError):
            return held
        if (foreign := held.foreign(intent)) or self._phases.has_expired(held):
            return Blocked(foreign)
        return PendingOperation(operation, held)

    async def _recall(
        self,
        operations: Sequence[RoutedWrite],
        decided: list[PreparedOperation | _Attempted | PendingOperation],
    ) -> None:
        """Answer operations with a key that have happened; under their intents that is certain."""
        keyed = [
            i
            for i, one in enumerate(decided)
            if isinstance(one, PendingOperation) and one.operation.fingerprint and one.held.is_known
        ]

        async def recall(route: ClassRoute, operation: WriteOperation) -> _Attempted | None:
            try:
                return await self._plane.stored_outcome(route, operation)
            except MediatorError as error:
                return error

        answers = await concurrently(recall(*operations[i]) for i in keyed)
        for i, answer in zip(keyed, answers, strict=True):
            decided[i] = answer or decided[i]

    async def _commit(
        self, entry: Entry, prepared: Sequence[PreparedOperation]
    ) -> Sequence[_Attempted]:
        try:
            answers = await self._phases.commit(entry, prepared)
        except (MediatorError, Blocked) as error:
            return [error] * len(prepared)
        # Whoever applied its steps, it is this write that has happened.
        return [
            replace(a, replayed=False) if isinstance(a, Outcome) and a.replayed else a
            for a in answers
        ]


def _answered(operation: PreparedOperation | MediatorError) -> PreparedOperation | Answer:
    if isinstance(operation, PreparedOperation) and operation.outcome is not None:
        return operation.outcome
    return operation
