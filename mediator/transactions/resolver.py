"""Resolving writes over several systems: those committed are rolled forward, others aborted.

Anybody may do so at any time: the log decides, and a step without its intent does nothing
(docs/transactions.md, "Failures and races").
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

from mediator.base.concurrency import concurrently, results_or_raise
from mediator.base.errors import AdvisoryOnly, MediatorError, NotFound, OutcomeUnknown, Unavailable
from mediator.base.observation import Observer, RedoRecovered
from mediator.model.operations import Outcome, WriteOperation
from mediator.operations.backoff import MAX_PAUSE_S
from mediator.operations.calls import StoreCalls
from mediator.operations.intents import ForeignIntents, IntentStore
from mediator.routing.model import ClassRoute, RoutingModel
from mediator.schema.foreign_keys import ForeignKey
from mediator.stores.port import RecordKey
from mediator.transactions.applying import Answer, Applier
from mediator.transactions.log import LONGEST_LEASE_S, State, TransactionEntry, TransactionLog
from mediator.transactions.preparing import PreparedOperation
from mediator.transactions.redo import dump_outcome, load_operation, written_records
from mediator.transactions.targets import LockTarget, record_keys

__all__ = ["OperationPlane", "TransactionResolver"]

CATALOGUE_S: Final = 6.0
"""What a lease allows for the catalogue, in addition to the deadlines of the stores."""

ROUND_TRIPS: Final = 4
"""Round trips to stores, one after the other, that a lease allows for."""

REFUSED_S: Final = 3600.0
"""How long a refused intent cannot be logged: longer than any call is under way."""

RECOVERY_BATCH: Final = 50

RETRY_S: Final = 0.0
"""A replica that fails to resolve a write leaves it to the next that looks for any: another one may
reach a system that this one does not."""

REMOVED_WITHIN_S: Final = 0.1
"""How long finished writes are collected, so that one statement removes many of them.

For as long after the last write of a class, it cannot be placed anew.
"""


class OperationPlane(Protocol):
    """What writes over several systems need of the plane that carries out single operations."""

    @property
    def model(self) -> RoutingModel:
        """The routing model in force."""

    async def route(self, database: str, class_name: str) -> ClassRoute:
        """Return the route of a class."""

    async def newest_model(self) -> RoutingModel:
        """Look for a newer routing model."""

    async def find_referencing(
        self, database: str, key: ForeignKey, ids: Sequence[str], most: int
    ) -> Sequence[str]:
        """Return the ids of up to `most` objects that refer to any of some objects.

        It finds all that is acknowledged. Raises `MediatorError`.
        """

    async def stored_outcome(self, route: ClassRoute, operation: WriteOperation) -> Outcome | None:
        """Return the answer that the stores remember of an operation."""

    async def remove_copy(self, route: ClassRoute, id_: str, version: int) -> None:
        """Remove the view's copy of an object that was deleted."""


class TransactionResolver:
    """Resolves writes, also those of failed coordinators; implements `IntentResolver`."""

    def __init__(
        self, plane: OperationPlane, calls: StoreCalls, log: TransactionLog, observe: Observer
    ) -> None:
        self._plane = plane
        self._calls = calls
        self._log = log
        self._observe = observe
        self.intents = IntentStore(calls.systems)
        self.applier = Applier(calls, self.intents, plane.remove_copy)
        self._applying: dict[str, asyncio.Task[Any]] = {}
        self._finished: list[str] = []
        self._removing: asyncio.Task[None] | None = None

    @property
    def lease_s(self) -> float:
        """Lease of a write: as a rule, more seconds than a live coordinator needs."""
        deadlines = [guarded.store.config.deadline_s for guarded in self._calls.systems]
        lease_s = CATALOGUE_S + ROUND_TRIPS * max(deadlines, default=0.0)
        return min(lease_s, LONGEST_LEASE_S)

    async def recover(self) -> int:
        """Resolve writes whose coordinators have failed; returns how many."""
        resolved = 0
        for entry in await self._log.take(RECOVERY_BATCH, self.lease_s):
            with suppress(MediatorError):
                await self.resolve_entry(entry)
                resolved += 1
        return resolved

    async def resolve(self, met: ForeignIntents) -> None:
        """Roll committed writes forward, and remove the intents of those that are over."""
        entries = await self._log.find(list(met))
        if unknown := [intent for intent in met if intent not in entries]:
            # First refuse, then look again: from here on they cannot be logged, so what is removed
            # below is no intent of a write that may still commit.
            await self._log.refuse(unknown, REFUSED_S)
            entries |= await self._log.find(unknown)
        known = ((entries[intent], keys) for intent, keys in met.items() if intent in entries)
        await concurrently(self.resolve_found(entry, keys) for entry, keys in known)

    async def resolve_found(self, entry: TransactionEntry, keys: Sequence[RecordKey]) -> None:
        """Resolve a write of the log as far as that is possible; `keys` have its intents."""
        decided = entry.state is State.COMMITTED or entry.intent in self._applying
        if decided or await self._commit_staged(entry):
            # Rolled forward once for all who meet it here; they back off further if it takes long.
            task = self._applying.get(entry.intent) or self._start(entry)
            await asyncio.wait([task], timeout=MAX_PAUSE_S)
        elif entry.state not in (State.PREPARING, State.STAGED):
            await self.intents.unlock(keys, entry.intent)
        elif entry.overdue:
            await self.resolve_entry(entry)

    async def _commit_staged(self, entry: TransactionEntry, *, fences: bool = False) -> bool:
        """Have the log say of a staged write that has all its intents that it is committed.

        One of its records may have been written already. Then it was the last joint write of that
        record, and is until all of the intents are gone: none that comes later applies before.

        With `fences` it sets no more intents: once this returns false, it never has all of them.
        """
        if entry.state is not State.STAGED:
            return False
        records = await self._staged_records(entry)
        if fences:
            await concurrently(self._calls.fence(*record, entry.intent) for record in records)
        states = await self.intents.record_states(records)
        is_locked = all(entry.intent in (each.intent, each.joint) for each in states)
        return bool(states) and is_locked and await self._log.commit(entry.intent, entry.redo or [])

    async def _staged_records(self, entry: TransactionEntry) -> list[RecordKey]:
        await self._plane.newest_model()
        records: list[RecordKey] = []
        for document in entry.redo or ():
            if route := await self._route(entry.database, document["class"]):
                records += written_records(route, document)
        return records

    async def resolve_entry(self, entry: TransactionEntry) -> None:
        """Abort a write, or roll it forward if it is committed by now."""
        try:
            committed = entry.state is State.COMMITTED or await self._commit_staged(
                entry, fences=True
            )
            if not committed and await self._log.abort(entry.intent) in (None, State.ABORTED):
                await self._remove_aborted(entry)
                return
            current = await self._log.find([entry.intent])
            answers = await self.roll_forward(current[entry.intent]) if current else []
        except Unavailable:
            await self._log.postpone(entry.intent, RETRY_S)
            raise
        results_or_raise(answers)
        self._observe(RedoRecovered(entry.database, entry.intent, "applied"))

    async def _remove_aborted(self, entry: TransactionEntry) -> None:
        # By an older model, records of a class placed anew would be missed.
        await self._plane.newest_model()
        routes = [(await self._route(entry.database, name), id_) for name, id_ in entry.records]
        targets = [LockTarget(route, id_) for route, id_ in routes if route is not None]
        await self.intents.unlock(record_keys(targets), entry.intent)
        await self._log.remove([entry.intent])
        if entry.records:
            self._observe(RedoRecovered(entry.database, entry.intent, "dropped"))

    async def roll_forward(self, entry: TransactionEntry) -> list[Answer]:
        """Apply what a write has committed; returns the answer to each operation.

        It goes on if the caller is cancelled.
        """
        return await asyncio.shield(self._start(entry))

    async def _roll_forward(self, entry: TransactionEntry) -> list[Answer]:
        # By an older model, a fragment would seem to have left the class.
        await self._plane.newest_model()
        redo = entry.redo or ()
        names = {document["class"] for document in redo}
        routes = {name: await self._route(entry.database, name) for name in names}
        loaded = [load_operation(routes[d["class"]], d, entry.intent) for d in redo]
        return await self._apply(entry, loaded)

    async def apply(
        self, entry: TransactionEntry, prepared: Sequence[PreparedOperation]
    ) -> list[Answer]:
        """Apply a committed write of the current task, and remove it from the log afterwards.

        Others that meet the write meanwhile wait for that task, which nobody may cancel.
        """
        task = asyncio.current_task()
        assert task is not None
        self._applying[entry.intent] = task
        try:
            return await self._apply(entry, prepared)
        finally:
            self._applying.pop(entry.intent, None)

    def _start(self, entry: TransactionEntry) -> asyncio.Task[list[Answer]]:
        def forget(task: asyncio.Task[list[Answer]]) -> None:
            self._applying.pop(entry.intent, None)
            if not task.cancelled():
                task.exception()  # retrieved: else asyncio logs it where no task awaits it

        task = self._applying[entry.intent] = asyncio.create_task(self._roll_forward(entry))
        task.add_done_callback(forget)
        return task

    async def _apply(
        self, entry: TransactionEntry, committed: Sequence[PreparedOperation | Outcome]
    ) -> list[Answer]:
        prepared = [one for one in committed if isinstance(one, PreparedOperation)]
        try:
            applied = iter(await self.applier.apply(prepared, entry.intent))
            answers = [
                next(applied) if isinstance(one, PreparedOperation) else one for one in committed
            ]
        except MediatorError as error:
            answers = [error] * len(committed)
        if not any(isinstance(answer, MediatorError) for answer in answers):
            await self._finish(entry, answers)
        else:
            with suppress(Unavailable):
                if entry.state is State.STAGED:  # those who find it need not look for its intents
                    await self._log.commit(entry.intent, entry.redo or [])
                if await self.outdated(operation.target.route for operation in prepared):
                    # A class was placed anew meanwhile: go on with the routes of today.
                    current = await self._log.find([entry.intent])
                    if entry.intent in current:
                        return await self._roll_forward(current[entry.intent])
                await self._log.postpone(entry.intent, RETRY_S)
        return [_outcome_unknown(a) if isinstance(a, MediatorError) else a for a in answers]

    async def _finish(self, entry: TransactionEntry, answers: Sequence[Answer]) -> None:
        # All of it is applied: an entry left in the log would be applied again, without effect.
        if entry.operation is None:
            self.forget(entry.intent)
            return
        with suppress(Unavailable):
            done = [dump_outcome(answer) for answer in answers if isinstance(answer, Outcome)]
            await self._log.finish(entry.intent, done)

    def is_over(self, intent: str) -> bool:
        """Whether a write of this process has ended, although the log may still have it."""
        return intent in self._finished

    def forget(self, intent: str) -> None:
        """Remove a write whose intents are gone from the log: soon, with many others."""
        self._finished.append(intent)
        if self._removing is None or self._removing.done():
            self._removing = asyncio.create_task(self._remove_finished())

    async def _remove_finished(self) -> None:
        while self._finished:
            await asyncio.sleep(REMOVED_WITHIN_S)
            finished, self._finished = self._finished, []
            with suppress(Unavailable):  # recovery will find that nothing is left to be done
                await self._log.remove(finished)

    async def abandon(self, entry: TransactionEntry, targets: Sequence[LockTarget]) -> None:
        """Remove the intents of a write that will not happen.

        What cannot be reached now is left to those who meet it, and to recovery.
        """
        try:
            await self.intents.unlock(record_keys(targets), entry.intent)
            if entry.operation is None:
                self.forget(entry.intent)
            else:  # at once: the next attempt has the same operation
                await self._log.remove([entry.intent])
        except MediatorError:
            with suppress(MediatorError):
                await self._log.abort(entry.intent)

    async def withdraw(
        self, entry: TransactionEntry, targets: Sequence[LockTarget]
    ) -> list[Answer] | None:
        """Abort a staged write, which may have all its intents without its coordinator knowing.

        Returns:
            The answers, if another replica has found them all; None: it will not happen.

        Raises:
            OutcomeUnknown: Nothing shows what happened, or what would does not answer.
        """
        try:
            state = await self._log.abort(entry.intent)
            if state is State.ABORTED:
                await self.abandon(entry, targets)
                return None
            if state is None and not await self._has_ended(entry, targets):
                await self.release(targets, entry.intent)
                return None
            return await self.roll_forward(entry)
        except OutcomeUnknown:
            raise
        except Unavailable as error:
            detail = "Not all systems answer; the write may happen."
            raise OutcomeUnknown(detail, system=error.system) from error

    async def _has_ended(self, entry: TransactionEntry, targets: Sequence[LockTarget]) -> bool:
        """Whether a write that the log does not know has happened, and was forgotten.

        Else its entry has not arrived, and does not from now on. A write is forgotten once all of
        its intents are gone.

        Raises:
            Unavailable: A system or the catalogue does not answer.
            OutcomeUnknown: Nothing shows it: no record has its intent, nor was written by it last.
        """
        await self._log.refuse([entry.intent], REFUSED_S)
        if await self._log.abort(entry.intent) is not State.ABORTED:
            return True  # it has arrived meanwhile, and was found complete
        states = await self.intents.record_states(record_keys(targets))
        if any(state.intent == entry.intent for state in states):
            return False
        if any(state.joint == entry.intent for state in states):
            return True
        detail = "The object was written by others since; nothing shows whether this came before."
        raise OutcomeUnknown(detail, system="the catalogue")

    async def release(self, targets: Sequence[LockTarget], intent: str) -> None:
        """Remove intents from objects that a write does not change, if they can be reached."""
        if targets:
            with suppress(MediatorError):
                await self.intents.unlock(record_keys(targets), intent)

    async def outdated(self, routes: Iterable[ClassRoute]) -> bool:
        """Whether any route is not in the newest model: its class may have been placed anew."""
        databases = (await self._plane.newest_model()).databases
        for route in routes:
            database = databases.get(route.anchor.database)
            if database is None or database.classes.get(route.schema.name) is not route:
                return True
        return False

    async def close(self) -> None:
        """Wait for what is being applied, and removed from the log."""
        tasks = [*self._applying.values(), self._removing]
        await asyncio.gather(*(task for task in tasks if task), return_exceptions=True)

    async def _route(self, database: str, class_name: str) -> ClassRoute | None:
        try:
            return await self._plane.route(database, class_name)
        except (NotFound, AdvisoryOnly):
            return None


def _outcome_unknown(error: MediatorError) -> OutcomeUnknown:
    detail = "The write is committed; what is missing of it follows once all systems answer."
    system = error.system if isinstance(error, Unavailable) else "unknown"
    unknown = OutcomeUnknown(detail, system=system)
    unknown.__cause__ = error
    return unknown
