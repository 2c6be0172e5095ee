"""Transactions: writes of several objects that happen if the read set is unchanged.

They go through the phases of every write over several systems (`mediator.transactions.phases`); the
read set and foreign keys are validated once their intents are set, before they are committed. The
referential actions of deletions are part of the transaction (`mediator.transactions.foreign_keys`).
A transaction that meets an intent of another write removes its own, and starts over a moment later:
so transactions never wait in a cycle, and cannot deadlock.
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
    check_rewritten,
    deletions,
    reachable,
    referenced_objects,
)
from mediator.transactions.joint import JointWriter
from mediator.transactions.log import State, TransactionEntry, TransactionLog
from mediator.transactions.model import CommitRequest, WriteBlocked, check
from mediator.transactions.phases import Phases
from mediator.transactions.plane import OperationPlane
from mediator.transactions.preparing import PendingOperation, PreparedOperation, prepare
from mediator.transactions.redo import load_outcome
from mediator.transactions.referential_actions import Actions, ObjectKey, find_actions
from mediator.transactions.reserving import ReserveResult, check_sizes, reserve
from mediator.transactions.resolver import TransactionResolver
from mediator.transactions.targets import LockTarget
from mediator.transactions.validation import validate

__all__ = ["Transactions"]

MAX_WAIT_S: Final = 2.0
"""How long a transaction retries while other writes hold its objects."""


class Transactions:
    """Executes transactions; `joint` executes single writes over several systems."""

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
        """Execute a transaction; returns the outcome of each of its writes, in their order.

        Raises:
            TransactionAborted: Its read set has changed, or other writes were always faster.
            OutcomeUnknown: It is committed, or may be; its writes are applied later.
            MediatorError: One of its operations cannot be done, so none was.
        """
        check(transaction)

        async def attempt(_: Backoff) -> list[Outcome]:
            return await self._replay(transaction) or await self._attempt(transaction)

        try:
            return await self.phases.until_free(attempt, MAX_WAIT_S)
        except WriteBlocked:
            detail = "Other writes hold the same objects; nothing was done."
            raise TransactionAborted(detail) from None

    async def _replay(self, transaction: CommitRequest) -> list[Outcome] | None:
        """Return the outcomes of a repeated transaction; None: it has not happened."""
        if transaction.fingerprint is None:
            return None
        entry = await self.log.find_operation(transaction.operation)
        if entry is None:
            return None
        if entry.fingerprint != transaction.fingerprint:
            raise IdempotencyReused("The Idempotency-Key was used with another request before.")
        write_count = len(transaction.writes)  # referential actions come after them
        if entry.state is State.DONE:
            return [load_outcome(document) for document in entry.answer or ()][:write_count]
        if entry.state is State.COMMITTED:
            return results_or_raise(await self.resolver.roll_forward(entry))[:write_count]
        if not entry.overdue:
            raise Locked("The first request with this Idempotency-Key is under way.")
        await self.resolver.resolve_entry(entry)
        raise WriteBlocked

    async def _attempt(self, transaction: CommitRequest) -> list[Outcome]:
        routes = await self._routes(transaction)
        try:
            return await self._execute(transaction, routes)
        except OutcomeUnknown:
            raise
        except Unavailable:
            if await self.resolver.outdated(routes.values()):
                raise WriteBlocked from None  # the class may have been placed anew
            raise

    async def _execute(
        self, transaction: CommitRequest, routes: dict[str, ClassRoute]
    ) -> list[Outcome]:
        if not transaction.writes:
            await self._validate(transaction, routes, "")
            return []
        actions = await self._find_actions(transaction, routes)
        write_keys = [(write.class_name, write.id) for write in transaction.writes]
        written = dict.fromkeys([*write_keys, *actions.written])
        targets = [LockTarget(routes[class_name], id_) for class_name, id_ in written]
        entry = _entry_of(transaction, [*written, *referenced_objects(routes, transaction.writes)])
        with self.phases.within(entry):
            try:
                prepared = await self._prepare(transaction, routes, targets, entry)
            except BaseException:
                await self.resolver.abandon(entry, targets)
                raise
            prepared_targets = {operation.target for operation in prepared}
            await self.resolver.release(
                [t for t in targets if t not in prepared_targets], entry.intent
            )
            outcomes = results_or_raise(await self.phases.commit(entry, prepared))
            return outcomes[: len(write_keys)]

    async def _find_actions(
        self, transaction: CommitRequest, routes: Mapping[str, ClassRoute]
    ) -> Actions:
        """Find the referential actions of a transaction, given the current objects."""
        deleted = deletions(routes, transaction.writes)
        rewritten = {(write.class_name, write.id) for write in transaction.writes} - {*deleted}
        find = self._plane.find_referencing
        return await find_actions(find, transaction.database, routes, deleted, frozenset(rewritten))

    async def _prepare(
        self,
        transaction: CommitRequest,
        routes: dict[str, ClassRoute],
        targets: Sequence[LockTarget],
        entry: TransactionEntry,
    ) -> list[PreparedOperation]:
        """Set the intents, turn the operations into steps, and validate the read set.

        Returns the operations of the transaction, then its referential actions.
        """
        await self.phases.delete_expired(targets)
        objects = results_or_raise(await self.phases.begin(entry, targets))
        foreign_intents: dict[str, list[RecordKey]] = {}
        for locked in objects:
            for intent, keys in locked.foreign(entry.intent).items():
                foreign_intents.setdefault(intent, []).extend(keys)
        if foreign_intents or any(map(self.phases.has_expired, objects)):
            raise WriteBlocked(foreign_intents)
        locked_objects = {(o.target.route.schema.name, o.target.id): o for o in objects}
        actions = await self._final_actions(transaction, routes, locked_objects.keys(), entry)
        read_keys = {(read.class_name, read.id) for read in transaction.reads if read.versions}
        write_keys = [(write.class_name, write.id) for write in transaction.writes]
        pending = [
            PendingOperation(operation, locked_objects[key], key in read_keys)
            for operation, key in zip(transaction.writes, write_keys, strict=True)
        ]
        pending += [
            # Actions need no prior read: under the intents their objects are as found.
            PendingOperation(
                operation, locked_objects[operation.class_name, operation.id], was_read=True
            )
            for operation in actions.operations(transaction.database, routes, write_keys)
        ]
        planned = await prepare(pending, entry.intent, self._calls)
        steps = results_or_raise(await check_sizes(pending, planned, self.resolver.intents))
        check_rewritten(actions, steps)
        prepared = _require_all(await reserve(steps, self._calls, self.resolver.intents))
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
        """Find the referential actions again, now that no further ones can arise.

        Raises:
            StillReferenced: Foreign keys forbid it.
            WriteBlocked: An object without an intent now refers to a deleted one.
        """
        deleted = deletions(routes, transaction.writes)
        if not deleted:
            return Actions({})
        referenced = [key for key in locked if routes[key[0]].referenced_by]
        await self._foreign_keys.wait_for_referring(entry, referenced)
        actions = await self._find_actions(transaction, routes)
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
        """Check that the targets of foreign keys exist; raises as `ForeignKeyChecks` does.

        Raises:
            WriteBlocked: Other writes hold a target.
        """
        writes = transaction.writes
        foreign_intents = await self._foreign_keys.require_targets(writes, prepared, routes, intent)
        if foreign_intents:
            raise WriteBlocked(foreign_intents)

    async def _validate(
        self, transaction: CommitRequest, routes: dict[str, ClassRoute], intent: str
    ) -> None:
        """Validate the read set; raises `WriteBlocked` while other writes hold objects of it."""
        intents, now = self.resolver.intents, self._clock.now
        foreign_intents = await validate(intents, transaction.reads, routes, intent, now)
        # Only now: a held class may have been placed anew before its records were read.
        read_only = routes.keys() - {write.class_name for write in transaction.writes}
        self._calls.admission.check(f for name in read_only for f in routes[name].fragments)
        if foreign_intents:
            raise WriteBlocked(foreign_intents)

    async def _routes(self, transaction: CommitRequest) -> dict[str, ClassRoute]:
        """Return the routes of a transaction's classes; reads of removed classes fail validation.

        Unknown classes cause one fetch of the newest model, and a second one only if a written
        class is still unknown.
        """
        database = transaction.database
        written = {write.class_name for write in transaction.writes}
        class_names = written | {read.class_name for read in transaction.reads}
        if unknown := class_names - self._classes(database).keys():
            first = min(unknown & written or unknown)
            try:
                await self._plane.route(database, first)
            except NotFound:
                if first in written:
                    raise
        classes = self._classes(database)
        routes = {name: classes[name] for name in sorted(class_names & classes.keys())}
        for name in sorted(written - routes.keys()):
            routes[name] = await self._plane.route(database, name)
        for name in sorted(reachable(classes, transaction.writes) - routes.keys()):
            routes[name] = classes[name]
        return routes

    def _classes(self, database: str) -> Mapping[str, ClassRoute]:
        route = self._plane.model.databases.get(database)
        return route.classes if route else {}


def _require_all(reserved: Sequence[ReserveResult]) -> list[PreparedOperation]:
    """Return the operations; raises the error of one that cannot be applied, or not now."""
    for result in reserved:
        if isinstance(result, WriteBlocked):
            raise result
    return results_or_raise(result for result in reserved if not isinstance(result, WriteBlocked))


def _entry_of(transaction: CommitRequest, records: Iterable[ObjectKey]) -> TransactionEntry:
    keyed = transaction.fingerprint is not None
    return TransactionEntry(
        uuid4().hex,
        transaction.database,
        [list(record) for record in records],
        transaction.operation if keyed else None,
        transaction.fingerprint,
    )
