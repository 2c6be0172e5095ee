"""Transactions: writes of several objects that happen if all that was read is unchanged.

They go through the phases of every write over several systems (`mediator.transactions.phases`); the
read set is validated once their intents are set, before they are committed. So are foreign keys;
what follows from a deletion is part of the transaction (`mediator.transactions.foreign_keys`). A
transaction that meets an intent of another write removes its own, and starts over a moment later:
so none waits for another in a circle, and there is no deadlock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final
from uuid import uuid4

from mediator.base.clock import Clock
from mediator.base.concurrency import results_or_raise
from mediator.base.errors import (
    IdempotencyReused,
    Locked,
    NotFound,
    OutcomeUnknown,
    TransactionAborted,
    Unavailable,
)
from mediator.base.observation import Observer
from mediator.model.operations import Outcome
from mediator.operations.backoff import Backoff
from mediator.operations.calls import StoreCalls
from mediator.routing.model import ClassRoute
from mediator.stores.port import RecordKey
from mediator.transactions.foreign_keys import (
    ForeignKeyChecks,
    announced,
    check_rewritten,
    deletions,
    reachable,
)
from mediator.transactions.joint import JointWriter
from mediator.transactions.log import State, TransactionEntry, TransactionLog
from mediator.transactions.model import CommitRequest, WriteBlocked, check
from mediator.transactions.phases import Phases
from mediator.transactions.plane import OperationPlane
from mediator.transactions.preparing import PendingOperation, PreparedOperation, prepare
from mediator.transactions.redo import load_outcome
from mediator.transactions.referential_actions import Actions, ObjectKey, find_actions
from mediator.transactions.reserving import Reserved, reserve, within_bounds
from mediator.transactions.resolver import TransactionResolver
from mediator.transactions.targets import LockTarget
from mediator.transactions.validation import validate

__all__ = ["Transactions"]

MAX_WAIT_S: Final = 2.0
"""How long a transaction retries while others write its objects."""


class Transactions:
    """Carries out transactions; `joint` carries out single writes over several systems."""

    def __init__(
        self,
        plane: OperationPlane,
        calls: StoreCalls,
        log: TransactionLog,
        clock: Clock,
        observe: Observer,
    ) -> None:
        self._plane = plane
        self._calls = calls
        self.log = log
        self._clock = clock
        self.resolver = TransactionResolver(plane, calls, log, observe)
        self.phases = Phases(calls, log, self.resolver, clock)
        self.joint = JointWriter(plane, calls, self.resolver, self.phases)
        self._foreign_keys = ForeignKeyChecks(log, self.resolver)

    async def run(self, transaction: CommitRequest) -> list[Outcome]:
        """Carry out a transaction; returns the outcome of each of its writes, in their order.

        Raises:
            TransactionAborted: What it has read is no longer so, or others were always faster.
            OutcomeUnknown: It is committed, or may be; what it writes follows.
            MediatorError: One of its operations cannot be done, so none was.
        """
        check(transaction)

        async def attempt(_: Backoff) -> list[Outcome]:
            return await self._replay(transaction) or await self._attempt(transaction)

        try:
            return await self.phases.until_free(attempt, MAX_WAIT_S)
        except WriteBlocked:
            detail = "Others are at work on the same objects; nothing was done."
            raise TransactionAborted(detail) from None

    async def _replay(self, transaction: CommitRequest) -> list[Outcome] | None:
        """Return the outcomes of a transaction that was sent before; None: it has not happened."""
        if transaction.fingerprint is None:
            return None
        entry = await self.log.find_operation(transaction.operation)
        if entry is None:
            return None
        if entry.fingerprint != transaction.fingerprint:
            raise IdempotencyReused("The Idempotency-Key was used with another request before.")
        named = len(transaction.writes)  # what followed from them comes after
        if entry.state is State.DONE:
            return [load_outcome(document) for document in entry.answer or ()][:named]
        if entry.state is State.COMMITTED:
            return results_or_raise(await self.resolver.roll_forward(entry))[:named]
        if not entry.overdue:
            raise Locked("The first request with this Idempotency-Key is under way.")
        await self.resolver.resolve_entry(entry)
        raise WriteBlocked

    async def _attempt(self, transaction: CommitRequest) -> list[Outcome]:
        routes = await self._routes(transaction)
        try:
            return await self._carry_out(transaction, routes)
        except OutcomeUnknown:
            raise
        except Unavailable:
            if await self.resolver.outdated(routes.values()):
                raise WriteBlocked from None  # it may have been a class that no longer exists there
            raise

    async def _carry_out(
        self, transaction: CommitRequest, routes: dict[str, ClassRoute]
    ) -> list[Outcome]:
        if not transaction.writes:
            await self._validate(transaction, routes, "")
            return []
        actions = await self._actions(transaction, routes)
        named = [(write.class_name, write.id) for write in transaction.writes]
        written = dict.fromkeys([*named, *actions.written])
        targets = [LockTarget(routes[class_name], id_) for class_name, id_ in written]
        entry = _entry_of(transaction, [*written, *announced(routes, transaction.writes)])
        with self.phases.within(entry):
            try:
                prepared = await self._prepare(transaction, routes, targets, entry)
            except BaseException:
                await self.resolver.abandon(entry, targets)
                raise
            kept = {one.target for one in prepared}
            await self.resolver.release([t for t in targets if t not in kept], entry.intent)
            outcomes = results_or_raise(await self.phases.commit(entry, prepared))
            return outcomes[: len(named)]

    async def _actions(
        self, transaction: CommitRequest, routes: Mapping[str, ClassRoute]
    ) -> Actions:
        """Find what follows from the deletions of a transaction, as its objects are now."""
        deleted = deletions(routes, transaction.writes)
        others = {(write.class_name, write.id) for write in transaction.writes} - {*deleted}
        find = self._plane.find_referencing
        return await find_actions(find, transaction.database, routes, deleted, frozenset(others))

    async def _prepare(
        self,
        transaction: CommitRequest,
        routes: dict[str, ClassRoute],
        targets: Sequence[LockTarget],
        entry: TransactionEntry,
    ) -> list[PreparedOperation]:
        """Set the intents, turn the operations into steps, and validate the read set.

        Returns the operations of the transaction, and those that follow from its deletions.
        """
        await self.phases.delete_expired(targets)
        objects = results_or_raise(await self.phases.begin(entry, targets))
        met: dict[str, list[RecordKey]] = {}
        for locked in objects:
            for intent, keys in locked.foreign(entry.intent).items():
                met.setdefault(intent, []).extend(keys)
        if met or any(map(self.phases.has_expired, objects)):
            raise WriteBlocked(met)
        known = {(o.target.route.schema.name, o.target.id): o for o in objects}
        actions = await self._final_actions(transaction, routes, known.keys(), entry)
        read = {(seen.class_name, seen.id) for seen in transaction.reads if seen.versions}
        named = [(write.class_name, write.id) for write in transaction.writes]
        pending = [
            PendingOperation(operation, known[key], key in read)
            for operation, key in zip(transaction.writes, named, strict=True)
        ]
        pending += [
            # Nobody has to have read what follows: under the intents it is as it was found.
            PendingOperation(operation, known[operation.class_name, operation.id], was_read=True)
            for operation in actions.operations(transaction.database, routes, named)
        ]
        planned = await prepare(pending, entry.intent, self._calls)
        steps = results_or_raise(await within_bounds(pending, planned, self.resolver.intents))
        check_rewritten(actions, steps)
        prepared = _required(await reserve(steps, self._calls, self.resolver.intents))
        await self._require_targets(transaction, prepared, routes, entry.intent)
        await self._validate(transaction, routes, entry.intent)
        return prepared

    async def _final_actions(
        self,
        transaction: CommitRequest,
        routes: Mapping[str, ClassRoute],
        locked: AbstractSet[ObjectKey],
        entry: TransactionEntry,
    ) -> Actions:
        """Find again what follows from the deletions, now that nobody can add to it.

        Raises:
            StillReferenced: Foreign keys forbid it.
            WriteBlocked: An object has begun to refer to what is deleted, which has no intent yet.
        """
        deleted = deletions(routes, transaction.writes)
        if not deleted:
            return Actions({})
        reached = [key for key in locked if routes[key[0]].referenced_by]
        await self._foreign_keys.wait_for_referring(entry, reached)
        actions = await self._actions(transaction, routes)
        actions.require_allowed(len(transaction.writes) - len(deleted))
        if not locked >= {*actions.written}:
            raise WriteBlocked
        return actions

    async def _require_targets(
        self,
        transaction: CommitRequest,
        prepared: Sequence[PreparedOperation],
        routes: Mapping[str, ClassRoute],
        intent: str,
    ) -> None:
        """Check that what foreign keys refer to exists; raises as `ForeignKeyChecks` does.

        Raises:
            WriteBlocked: Others are writing it.
        """
        writes = transaction.writes
        met = await self._foreign_keys.require_targets(writes, prepared, routes, intent)
        if met:
            raise WriteBlocked(met)

    async def _validate(
        self, transaction: CommitRequest, routes: dict[str, ClassRoute], intent: str
    ) -> None:
        """Validate the read set; raises `WriteBlocked` while others write what was read."""
        intents, now = self.resolver.intents, self._clock.now
        met = await validate(intents, transaction.reads, routes, intent, now)
        # Only now: a class that is held may have been placed anew before its records were read.
        read = routes.keys() - {write.class_name for write in transaction.writes}
        self._calls.admission.check(f for name in read for f in routes[name].fragments)
        if met:
            raise WriteBlocked(met)

    async def _routes(self, transaction: CommitRequest) -> dict[str, ClassRoute]:
        """Return the routes of a transaction's classes; a class read that is gone fails validation.

        However many are unknown, the newest model is fetched once. It is fetched again only if a
        write has to be refused after that has found the class of another.
        """
        database = transaction.database
        written = {write.class_name for write in transaction.writes}
        named = written | {seen.class_name for seen in transaction.reads}
        if unknown := named - self._classes(database).keys():
            first = min(unknown & written or unknown)
            try:
                await self._plane.route(database, first)
            except NotFound:
                if first in written:
                    raise
        classes = self._classes(database)
        routes = {name: classes[name] for name in sorted(named & classes.keys())}
        for name in sorted(written - routes.keys()):
            routes[name] = await self._plane.route(database, name)
        for name in sorted(reachable(classes, transaction.writes) - routes.keys()):
            routes[name] = classes[name]
        return routes

    def _classes(self, database: str) -> Mapping[str, ClassRoute]:
        route = self._plane.model.databases.get(database)
        return route.classes if route else {}


def _required(reserved: Sequence[Reserved]) -> list[PreparedOperation]:
    """Return the operations; raises why one of them cannot be applied, or not now."""
    for one in reserved:
        if isinstance(one, WriteBlocked):
            raise one
    return results_or_raise(one for one in reserved if not isinstance(one, WriteBlocked))


def _entry_of(transaction: CommitRequest, records: Iterable[ObjectKey]) -> TransactionEntry:
    keyed = transaction.fingerprint is not None
    return TransactionEntry(
        uuid4().hex,
        transaction.database,
        [list(record) for record in records],
        transaction.operation if keyed else None,
        transaction.fingerprint,
    )
