"""Resolving writes over several systems: committed ones roll forward, others are aborted.

Any process can do so at any time: the log decides, and a step without its intent does nothing
(docs/transactions.md, "Failures and races").
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

from mediator.base.concurrency import concurrently, results_or_raise
from mediator.base.errors import MediatorError, OutcomeUnknown, Unavailable
from mediator.base.observation import Observer, RedoRecovered
from mediator.model.operations import Outcome
from mediator.operations.backoff import MAX_PAUSE_S
from mediator.operations.calls import StoreCalls
from mediator.operations.intents import ForeignIntents, IntentStore
from mediator.routing.model import ClassRoute
from mediator.stores.port import RecordKey
from mediator.transactions.applying import Answer, Applier, StepRefused
from mediator.transactions.blind_writes import BlindWrites
from mediator.transactions.log import MAX_LEASE_S, State, TransactionEntry, TransactionLog
from mediator.transactions.plane import OperationPlane, route_if_any
from mediator.transactions.preparing import PreparedOperation
from mediator.transactions.redo import dump_outcome, load_operation
from mediator.transactions.targets import LockTarget, record_keys

__all__ = ["TransactionResolver"]

CATALOGUE_S: Final = 6.0
"""Seconds that a lease allows for the catalogue, in addition to the deadlines of the stores."""

ROUND_TRIPS: Final = 4
"""Consecutive round trips to stores that a lease allows for."""

RECOVERY_BATCH: Final = 50

RETRY_S: Final = 0.0
"""A replica that fails to resolve a write leaves it to the next recovery: another replica may reach
a system that this one does not."""

REFUSED_RETRY_S: Final = 60.0
"""After how long a write is retried if a store refuses a step: an operator has to help."""

REMOVED_WITHIN_S: Final = 0.1
"""How long finished writes are collected, so that one statement removes many of them.

A class cannot be placed anew for as long after its last write.
"""


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
        self._blind = BlindWrites(plane, calls, log, self.intents)
        self.applier = Applier(calls, self.intents, plane.remove_copy)
        self._applying: dict[str, asyncio.Task[Any]] = {}
        self._finished: list[str] = []
        self._removing: asyncio.Task[None] | None = None

    @property
    def lease_s(self) -> float:
        """Lease of a write: as a rule, more seconds than a live coordinator needs."""
        deadlines = [guarded.store.config.deadline_s for guarded in self._calls.systems]
        lease_s = CATALOGUE_S + ROUND_TRIPS * max(deadlines, default=0.0)
        return min(lease_s, MAX_LEASE_S)

    async def recover(self) -> int:
        """Resolve writes whose coordinators failed; returns how many."""
        resolved = 0
        for entry in await self._log.take(RECOVERY_BATCH, self.lease_s):
            with suppress(MediatorError):
                await self.resolve_entry(entry)
                resolved += 1
        return resolved

    async def resolve(self, foreign_intents: ForeignIntents) -> None:
        """Roll committed writes forward, and remove the intents of finished ones."""
        entries = await self._log.find(list(foreign_intents))
        if unknown := {
            intent: keys for intent, keys in foreign_intents.items() if intent not in entries
        }:
            entries |= await self._blind.log_unknown(unknown)
        logged = (
            (entries[intent], keys) for intent, keys in foreign_intents.items() if intent in entries
        )
        await concurrently(self.resolve_found(entry, keys) for entry, keys in logged)

    async def resolve_found(self, entry: TransactionEntry, keys: Sequence[RecordKey]) -> None:
        """Resolve a logged write as far as possible; `keys` have its intents."""
        is_committed = entry.state is State.COMMITTED or entry.intent in self._applying
        if is_committed or await self._blind.commit_complete(entry):
            # One task rolls it forward for all that meet it here; they keep backing off meanwhile.
            task = self._applying.get(entry.intent) or self._start(entry)
            await asyncio.wait([task], timeout=MAX_PAUSE_S)
        elif entry.state not in (State.PREPARING, State.STAGED):
            await self.intents.unlock(keys, entry.intent)
        elif entry.overdue:
            await self.resolve_entry(entry)

    async def resolve_entry(self, entry: TransactionEntry) -> None:
        """Abort a write, or roll it forward if it is committed by now."""
        try:
            committed = entry.state is State.COMMITTED or await self._blind.commit_complete(
                entry, fences=True
            )
            state = State.COMMITTED if committed else await self._log.abort(entry.intent)
            if state is None and entry.state is State.STAGED:
                return  # lost, or over: processes that meet its intents log it again
            if state in (None, State.ABORTED):
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
        # An older model would miss records of a class placed anew.
        await self._plane.newest_model()
        if entry.state is State.ABORTED and entry.redo:
            # Once the write is forgotten, a late intent of it would be taken for a lost write.
            await self._blind.fence(entry)
        routes = [
            (await route_if_any(self._plane, entry.database, name), id_)
            for name, id_ in entry.records
        ]
        targets = [LockTarget(route, id_) for route, id_ in routes if route is not None]
        await self.intents.unlock(record_keys(targets), entry.intent)
        await self._log.remove([entry.intent])
        if entry.records:
            self._observe(RedoRecovered(entry.database, entry.intent, "dropped"))

    async def roll_forward(self, entry: TransactionEntry) -> list[Answer]:
        """Apply a committed write; returns the answer to each operation.

        It continues if the caller is cancelled.
        """
        return await asyncio.shield(self._start(entry))

    async def _roll_forward(self, entry: TransactionEntry) -> list[Answer]:
        # In an older model, a fragment would seem to have left the class.
        await self._plane.newest_model()
        redo = entry.redo or ()
        names = {document["class"] for document in redo}
        routes = {name: await route_if_any(self._plane, entry.database, name) for name in names}
        loaded = [load_operation(routes[d["class"]], d, entry.intent) for d in redo]
        return await self._apply(entry, loaded)

    async def apply(
        self, entry: TransactionEntry, prepared: Sequence[PreparedOperation]
    ) -> list[Answer]:
        """Apply a committed write in the current task, and then remove it from the log.

        Requests that meet the write meanwhile wait for that task, which must not be cancelled.
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
                task.exception()  # retrieved: else asyncio logs it if no task awaits it

        task = self._applying[entry.intent] = asyncio.create_task(self._roll_forward(entry))
        task.add_done_callback(forget)
        return task

    async def _apply(
        self, entry: TransactionEntry, committed: Sequence[PreparedOperation | Outcome]
    ) -> list[Answer]:
        prepared = [c for c in committed if isinstance(c, PreparedOperation)]
        try:
            applied = iter(await self.applier.apply(prepared, entry.intent))
            answers = [next(applied) if isinstance(c, PreparedOperation) else c for c in committed]
        except MediatorError as error:
            answers = [error] * len(committed)
        if not any(isinstance(answer, MediatorError) for answer in answers):
            await self._finish(entry, answers)
        else:
            with suppress(Unavailable):
                if entry.state is State.STAGED:
                    await self._blind.log_committed(entry, self.lease_s)
                if await self.outdated(operation.target.route for operation in prepared):
                    # A class was placed anew meanwhile: continue with the current routes.
                    current = await self._log.find([entry.intent])
                    if entry.intent in current:
                        return await self._roll_forward(current[entry.intent])
                await self._postpone(entry, answers)
        return [_outcome_unknown(a) if isinstance(a, MediatorError) else a for a in answers]

    async def _postpone(self, entry: TransactionEntry, answers: Sequence[Answer]) -> None:
        """Leave a committed write to the next recovery; report one that is stuck."""
        refused = [answer.detail for answer in answers if isinstance(answer, StepRefused)]
        if refused:
            self._observe(RedoRecovered(entry.database, entry.intent, "refused", refused[0]))
        await self._log.postpone(entry.intent, REFUSED_RETRY_S if refused else RETRY_S)

    async def _finish(self, entry: TransactionEntry, answers: Sequence[Answer]) -> None:
        # Fully applied: an entry left in the log would be applied again, without effect.
        if entry.operation is None:
            self.forget(entry.intent)
            return
        with suppress(Unavailable):
            outcomes = [dump_outcome(answer) for answer in answers if isinstance(answer, Outcome)]
            await self._log.finish(entry.intent, outcomes)

    def is_over(self, intent: str) -> bool:
        """Whether a write of this process has ended, even if the log still has it."""
        return intent in self._finished

    def forget(self, intent: str) -> None:
        """Remove from the log a write whose intents are gone: soon, in a batch."""
        self._finished.append(intent)
        if self._removing is None or self._removing.done():
            self._removing = asyncio.create_task(self._remove_finished())

    async def _remove_finished(self) -> None:
        while self._finished:
            await asyncio.sleep(REMOVED_WITHIN_S)
            finished, self._finished = self._finished, []
            with suppress(Unavailable):  # recovery will find nothing left to do
                await self._log.remove(finished)

    async def abandon(self, entry: TransactionEntry, targets: Sequence[LockTarget]) -> None:
        """Remove the intents of a write that will not happen.

        Unreachable intents are left to processes that meet them, and to recovery.
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
        self, entry: TransactionEntry, targets: Sequence[LockTarget], *, refused: bool
    ) -> list[Answer] | None:
        """Abort a blind write, which may have all its intents without its coordinator knowing.

        Args:
            refused: Whether all records have answered, and one has refused its intent. Else
                intents may still come: recovery forgets the write once the records are fenced.

        Returns:
            The answers, if another replica found all intents; None: it will not happen.

        Raises:
            OutcomeUnknown: No record shows what happened, or a system that may does not answer.
        """
        try:
            if not await self._blind.abort(entry, targets, refused=refused):
                return await self.roll_forward(entry)
        except OutcomeUnknown:
            raise
        except Unavailable as error:
            detail = "Not all systems answer; the write may happen."
            raise OutcomeUnknown(detail, system=error.system) from error
        if refused:
            await self.abandon(entry, targets)
        else:
            await self.release(targets, entry.intent)
        return None

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
        """Wait for writes that are being applied, and for removals from the log."""
        tasks = [*self._applying.values(), self._removing]
        await asyncio.gather(*(task for task in tasks if task), return_exceptions=True)


def _outcome_unknown(error: MediatorError) -> OutcomeUnknown:
    detail = "The write is committed; its remaining steps follow once all systems answer."
    system = error.system if isinstance(error, Unavailable) else "unknown"
    unknown = OutcomeUnknown(detail, system=system)
    unknown.__cause__ = error
    return unknown
