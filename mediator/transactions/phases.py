"""The phases of a write over several systems, as its coordinator executes them.

1. begin: the write is logged, under a lease, and its intents are set, concurrently;
2. prepare: under its intents, its steps are computed (`preparing`);
3. commit: the log says *committed*, with all redo records;
4. apply: each step is applied under its intent, and removes it (`applying`);
5. forget: the log removes the write, or keeps its answer.

A blind write is logged with its steps, and its intents commit it without a separate phase.
docs/transactions.md explains what each phase leaves behind, and who resolves it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from mediator.base.clock import Clock
from mediator.base.concurrency import both
from mediator.base.errors import Locked, MediatorError, OutcomeUnknown, Unavailable
from mediator.operations.backoff import Backoff
from mediator.operations.calls import StoreCalls
from mediator.operations.expiry import expired
from mediator.stores.port import Record, RecordKey, RecordState
from mediator.transactions.applying import Answer
from mediator.transactions.log import TransactionEntry, TransactionLog
from mediator.transactions.model import WriteBlocked
from mediator.transactions.preparing import PreparedOperation
from mediator.transactions.redo import dump_operation, redo_of_intent
from mediator.transactions.resolver import TransactionResolver
from mediator.transactions.targets import LockedObject, LockTarget, locked_objects, record_keys

__all__ = ["Phases"]

_T = TypeVar("_T")


@dataclass(eq=False)
class Phases:
    """Executes the phases of writes."""

    _calls: StoreCalls
    _log: TransactionLog
    _resolver: TransactionResolver
    _clock: Clock

    async def until_free(self, attempt: Callable[[Backoff], Awaitable[_T]], bound_s: float) -> _T:
        """Call `attempt` until it is not blocked, or the bound has passed.

        Raises:
            WriteBlocked: The bound has passed.
        """
        backoff = Backoff(bound_s)
        while True:
            try:
                return await attempt(backoff)
            except WriteBlocked as blocked:
                if backoff.is_exhausted:
                    raise
                foreign_intents = blocked.foreign_intents
            await backoff.wait_for(foreign_intents, self._resolver)

    @contextmanager
    def within(self, entry: TransactionEntry) -> Iterator[None]:
        """Enclose a write; holds of its classes wait for the end of the block."""
        try:
            yield
        finally:
            self._calls.admission.end(entry.intent)

    async def begin(
        self, entry: TransactionEntry, targets: Sequence[LockTarget], *, anchor_first: bool = False
    ) -> list[LockedObject | MediatorError]:
        """Log a write and set its intents; returns its objects or errors.

        Must be called in the block of `within`.

        With `anchor_first`, for a single object, the intent on the anchor is set before all
        others, so as not to block a write that has it.

        Raises:
            WriteBlocked: It was refused, or another write has the anchor.
            Unavailable: The catalogue does not answer.
        """
        keys = record_keys(targets)
        anchor = await self._lock_anchor(keys[0], entry.intent) if anchor_first else ()
        # Send the entry first: recovery finds only intents that the log knows. If one is met before
        # its entry exists, other processes refuse or log it; `begin` then returns false.
        logged, states = await both(
            self._log.begin(entry, self._resolver.lease_s),
            self._resolver.intents.lock_each(
                keys[len(anchor) :], entry.intent, redo_of_intent(entry)
            ),
        )
        if not logged:
            raise WriteBlocked
        # Only now: a replica that places a class anew first refuses writes, then looks for
        # entries. This check comes after the entry, so one of the two sees the other. A
        # replica that places it anew later waits for the end of the write, and refuses no steps.
        self._calls.admission.begin(entry.intent, {fragment for fragment, _ in keys})
        return locked_objects(targets, [*anchor, *states])

    async def _lock_anchor(self, key: RecordKey, intent: str) -> Sequence[RecordState]:
        [state] = await self._resolver.intents.lock([key], intent)
        if state.intent != intent:
            raise WriteBlocked({state.intent: [key]})
        return [state]

    def has_expired(self, locked: LockedObject) -> bool:
        """Whether an object exists but has expired."""
        anchor, creation_version = locked.target.route.anchor, locked.creation_version
        if anchor.ttl_s is None or creation_version is None:
            return False
        return expired(
            anchor, Record(locked.target.id, creation_version, {}, {}), self._clock.now()
        )

    async def delete_expired(self, targets: Sequence[LockTarget]) -> None:
        """Delete the remains of expired objects that are about to be written.

        Raises:
            WriteBlocked: Another write's intent is on one of them.
        """
        expiring: dict[str, list[RecordKey]] = {}
        for fragment, id_ in record_keys(targets):
            if fragment.ttl_s is not None:
                expiring.setdefault(fragment.system, []).append((fragment, id_))
        try:
            for system, keys in expiring.items():
                await self._calls.delete_expired(self._calls.systems.get(system), keys)
        except Locked:
            raise WriteBlocked from None

    async def commit(
        self, entry: TransactionEntry, prepared: Sequence[PreparedOperation]
    ) -> list[Answer]:
        """Commit and apply a write; both continue if the caller is cancelled.

        Raises:
            WriteBlocked: It was aborted.
            OutcomeUnknown: The catalogue does not answer.
        """
        return await asyncio.shield(asyncio.create_task(self._commit(entry, prepared)))

    async def _commit(
        self, entry: TransactionEntry, prepared: Sequence[PreparedOperation]
    ) -> list[Answer]:
        try:
            committed = await self._log.commit(
                entry.intent, [dump_operation(operation) for operation in prepared]
            )
        except Unavailable as error:
            detail = "The catalogue does not answer; the write may have been committed."
            raise OutcomeUnknown(detail, system=error.system) from error
        if not committed:
            await self._resolver.abandon(entry, [operation.target for operation in prepared])
            raise WriteBlocked
        return await self._resolver.apply(entry, prepared)
