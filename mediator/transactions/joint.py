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
from mediator.operations.calls import StoreCalls
from mediator.operations.backoff import Patience
from mediator.routing.model import ClassRoute
from mediator.transactions.applying import Answer
from mediator.transactions.log import Entry
from mediator.transactions.model import Blocked
from mediator.transactions.phases import Phases
from mediator.transactions.preparing import Asked, Work, prepare
from mediator.transactions.recovery import Plane, Settler
from mediator.transactions.targets import Held, Target
from mediator.transactions.chunks import Routed, waves

__all__ = ["JointWriter"]

PATIENCE_S: Final = 2.0
"""How long a write tries to get past others."""

TURN_WITHIN_S: Final = 10.0
"""How long a write waits for others of the same replica on its object."""

ALONE_AT_ONCE: Final = 16
"""Objects that are tried alone at the same time."""

_Tried: TypeAlias = Answer | Blocked


class _NoTurn(Exception):
    """Others of the same replica were before it all the time."""


class JointWriter:
    """Writes objects whose fragments lie on several systems; implements `JointWrites`.

    Args:
        plane: Carries out single operations.
        calls: Sends store calls.
        settler: Applies what is committed, and resolves what is met.
        phases: What a write goes through.
    """

    def __init__(self, plane: Plane, calls: StoreCalls, settler: Settler, phases: Phases) -> None:
        self._plane = plane
        self._calls = calls
        self._settler = settler
        self._phases = phases
        self._turns = WeakValueDictionary[tuple[str, str, str], asyncio.Lock]()

    async def write(self, route: ClassRoute, operation: WriteOperation) -> Outcome:
        """Carry out one write.

        Raises:
            Locked: Others were at work on the object all the time; nothing was done.
            OutcomeUnknown: It is committed, or may be; what it writes follows.
            MediatorError: It cannot be done, and nothing was.
        """

        async def attempt(patience: Patience) -> Outcome:
            [answer] = await self._try([(route, operation)], patience)
            if isinstance(answer, Outcome):
                return answer
            raise answer

        try:
            async with self._turn(operation):
                return await self._phases.until_free(attempt, PATIENCE_S)
        except _NoTurn:
            detail = "Earlier writes to the object have not come to an end; nothing was done."
            raise Unavailable(detail, system=route.anchor.system) from None
        except Blocked:
            name = f"{operation.class_name}/{operation.id}"
            raise Locked(f"Others are at work on {name}; nothing was done, try again.") from None

    @asynccontextmanager
    async def _turn(self, operation: WriteOperation) -> AsyncIterator[None]:
        """Let writes of one object begin one after the other here, rather than meet in its records.

        Raises:
            _NoTurn: There were too many before it.
        """
        key = (operation.database, operation.class_name, operation.id)
        turn = self._turns.setdefault(key, asyncio.Lock())
        try:
            async with asyncio.timeout(TURN_WITHIN_S):
                await turn.acquire()
        except TimeoutError:
            raise _NoTurn from None
        try:
            yield
        finally:
            turn.release()

    async def write_each(self, operations: Sequence[Routed]) -> list[Answer]:
        """Carry out writes of different objects of one database; each fails by itself."""
        slots = asyncio.Semaphore(ALONE_AT_ONCE)
        answers = await concurrently(self._write_wave(wave, slots) for wave in waves(operations))
        return [answer for wave in answers for answer in wave]

    async def _write_wave(
        self, operations: Sequence[Routed], slots: asyncio.Semaphore
    ) -> list[Answer]:
        tried = await self._try(operations, None)

        async def alone(routed: Routed) -> Answer:
            async with slots:
                try:
                    return await self.write(*routed)
                except MediatorError as error:
                    return error

        blocked = [r for r, t in zip(operations, tried, strict=True) if isinstance(t, Blocked)]
        again = iter(await asyncio.gather(*map(alone, blocked)))
        return [next(again) if isinstance(one, Blocked) else one for one in tried]

    async def _try(self, operations: Sequence[Routed], patience: Patience | None) -> list[_Tried]:
        """Take operations through the phases once; with patience, a single one."""
        targets = [Target(route, operation.id) for route, operation in operations]
        places = [[target.route.schema.name, target.id] for target in targets]
        entry = Entry(uuid4().hex, operations[0][1].database, places)
        try:
            decided = await self._decide(operations, targets, entry, patience)
        except (MediatorError, Blocked) as error:
            await self._settler.abandon(entry, targets)
            return [error] * len(operations)
        except BaseException:
            await self._settler.abandon(entry, targets)
            raise
        works = [one for one in decided if isinstance(one, Work)]
        if not works:
            await self._settler.abandon(entry, targets)
            return [one for one in decided if not isinstance(one, Work)]
        dropped = [t for t, d in zip(targets, decided, strict=True) if not isinstance(d, Work)]
        await self._settler.release(dropped, entry.intent)
        answers = iter(await self._commit(entry, works))
        return [next(answers) if isinstance(one, Work) else one for one in decided]

    async def _decide(
        self,
        operations: Sequence[Routed],
        targets: Sequence[Target],
        entry: Entry,
        patience: Patience | None,
    ) -> list[Work | _Tried]:
        """Set the intents, and find out what the operations come to and whether they may."""
        await self._phases.end_expired(targets)
        waits = patience is not None and patience.has_waited
        begun = await self._phases.begin(entry, targets, anchor_first=waits)
        if patience is not None:
            begun = [await self._hold(begun[0], entry.intent, patience)]
        decided: list[Work | _Tried | Asked] = [
            self._asked(operation, held, entry.intent)
            for (_, operation), held in zip(operations, begun, strict=True)
        ]
        await self._recall(operations, decided)
        asked = [one for one in decided if isinstance(one, Asked)]
        works = iter(await prepare(asked, entry.intent, self._calls))
        return [_answered(next(works)) if isinstance(one, Asked) else one for one in decided]

    async def _hold(
        self, held: Held | MediatorError, intent: str, patience: Patience
    ) -> Held | MediatorError:
        """Keep an object whose anchor is ours, and wait for its other fragments."""
        while isinstance(held, Held) and not patience.is_over:
            foreign = held.foreign(intent)
            if not foreign or held.fragments[held.target.route.anchor].intent != intent:
                break
            await patience.wait_for(foreign, self._settler)
            keys = [key for own in foreign.values() for key in own]
            again = zip(keys, await self._settler.intents.lock(keys, intent), strict=True)
            now = {fragment: standing for (fragment, _), standing in again}
            held = replace(held, fragments={**held.fragments, **now})
        return held

    def _asked(
        self, operation: WriteOperation, held: Held | MediatorError, intent: str
    ) -> Asked | MediatorError | Blocked:
        """Tell an object that is ours from one on which others are at work."""
        if isinstance(held, MediatorError):
            return held
        if (foreign := held.foreign(intent)) or self._phases.has_expired(held):
            return Blocked(foreign)
        return Asked(operation, held)

    async def _recall(
        self, operations: Sequence[Routed], decided: list[Work | _Tried | Asked]
    ) -> None:
        """Answer operations with a key that have happened; under their intents that is certain."""
        keyed = [
            i
            for i, one in enumerate(decided)
            if isinstance(one, Asked) and one.operation.fingerprint and one.held.is_known
        ]

        async def recall(route: ClassRoute, operation: WriteOperation) -> _Tried | None:
            try:
                return await self._plane.recalled(route, operation)
            except MediatorError as error:
                return error

        answers = await concurrently(recall(*operations[i]) for i in keyed)
        for i, answer in zip(keyed, answers, strict=True):
            decided[i] = answer or decided[i]

    async def _commit(self, entry: Entry, works: Sequence[Work]) -> Sequence[_Tried]:
        try:
            answers = await self._phases.commit(entry, works)
        except (MediatorError, Blocked) as error:
            return [error] * len(works)
        # Whoever applied its steps, it is this write that has happened.
        return [
            replace(a, replayed=False) if isinstance(a, Outcome) and a.replayed else a
            for a in answers
        ]


def _answered(work: Work | MediatorError) -> Work | Answer:
    if isinstance(work, Work) and work.outcome is not None:
        return work.outcome
    return work
