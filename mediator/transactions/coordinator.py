"""Carrying out transactions, and settling those whose coordinator has gone.

1. the transaction is logged, under a lease;                 crash: recovery aborts it
2. the objects of its write set are marked, in the records;  crash: … and takes the marks away
3. what its operations come to is computed, and the read set is validated;
4. the log says *committed*, with all that is to be applied; crash: recovery applies it
5. it is applied, each step under its mark, which goes with it;
6. the log forgets it, or keeps the answer; then it is acknowledged.

Who meets a mark looks the log up. So a coordinator that died blocks nobody for longer than its
lease, and a mark that came late, when its transaction was over, not at all.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final
from uuid import uuid4

from mediator.clock import Clock
from mediator.errors import (
    IdempotencyReused,
    Locked,
    MediatorError,
    NotFound,
    OutcomeUnknown,
    TransactionAborted,
    Unavailable,
)
from mediator.operations.calls import StoreCalls
from mediator.operations.expiry import expired
from mediator.operations.model import Outcome
from mediator.placement.routing import ClassRoute
from mediator.stores.port import Fragment, Record
from mediator.transactions.applying import dump_work, load_outcome
from mediator.transactions.log import Entry, State, TransactionLog
from mediator.transactions.model import Blocked, Transaction, check
from mediator.transactions.places import Held, Target, gathered, lock_all
from mediator.transactions.preparing import Work, prepare
from mediator.transactions.recovery import Plane, Settler
from mediator.transactions.validation import validate

__all__ = ["Transactions"]

PATIENCE_S: Final = 2.0
"""How long a transaction tries to get past others."""

FIRST_PAUSE_S: Final = 0.005
LONGEST_PAUSE_S: Final = 0.2


class Transactions:
    """Carries out transactions, and lets plain writes look after the marks that they meet.

    Args:
        plane: Carries out single operations.
        calls: Sends store calls.
        log: The log of transactions.
        clock: The time, for what expires.
    """

    def __init__(self, plane: Plane, calls: StoreCalls, log: TransactionLog, clock: Clock) -> None:
        self._plane = plane
        self._calls = calls
        self._log = log
        self._clock = clock
        self._settler = Settler(plane, calls, log)
        self._marker = self._settler.marker
        calls.marks = self._settler
        self._tasks: set[asyncio.Task[list[Outcome]]] = set()

    async def run(self, transaction: Transaction) -> list[Outcome]:
        """Carry out a transaction; returns the outcome of each of its writes, in their order.

        Raises:
            TransactionAborted: What it has read is no longer so, or others were always faster.
            OutcomeUnknown: It is committed, or may be; what it writes follows.
            MediatorError: One of its operations cannot be done, so none was.
        """
        check(transaction)
        loop = asyncio.get_running_loop()
        patience, pause = loop.time() + PATIENCE_S, FIRST_PAUSE_S
        while True:
            try:
                return await self._known(transaction) or await self._attempt(transaction)
            except Blocked:
                if loop.time() > patience:
                    detail = "Others are at work on the same objects; nothing was done."
                    raise TransactionAborted(detail) from None
            await asyncio.sleep(pause * random.random())  # noqa: S311 - spreads those who wait
            pause = min(2 * pause, LONGEST_PAUSE_S)

    async def recover(self) -> int:
        """Settle transactions whose coordinators have gone; returns how many were."""
        return await self._settler.recover()

    async def reap(self, limit: int) -> int:
        """Forget answers that need not be remembered any longer."""
        return await self._log.reap(limit)

    async def _known(self, transaction: Transaction) -> list[Outcome] | None:
        """Answer a transaction that comes again; None: it has not happened."""
        if transaction.fingerprint is None:
            return None
        entry = await self._log.find_operation(transaction.operation)
        if entry is None:
            return None
        if entry.fingerprint != transaction.fingerprint:
            raise IdempotencyReused("The Idempotency-Key was used with another request before.")
        if entry.state is State.DONE:
            return [load_outcome(told) for told in entry.answer or ()]
        if entry.state is State.COMMITTED:
            return await self._settler.roll_forward(entry)
        if not entry.overdue:
            raise Locked("The first request with this Idempotency-Key is under way.")
        await self._settler.take_over(entry.mark)
        raise Blocked

    async def _attempt(self, transaction: Transaction) -> list[Outcome]:
        routes = await self._routes(transaction)
        try:
            return await self._carry_out(transaction, routes)
        except OutcomeUnknown:
            raise
        except Unavailable:
            if await self._settler.outdated(routes.values()):
                raise Blocked from None  # what did not answer may have been a class that is gone
            raise

    async def _carry_out(
        self, transaction: Transaction, routes: dict[str, ClassRoute]
    ) -> list[Outcome]:
        targets = [Target(routes[w.class_name], w.id) for w in transaction.writes]
        await self._end_expired(targets)
        if not targets:
            await self._check_reads(transaction, routes, "")
            return []
        entry = _entry_of(transaction)
        if await self._log.begin(entry, self._settler.lease_s) is not None:
            raise Blocked
        try:
            # Only now: who places a class anew looks for entries once no more can come unseen.
            self._calls.check_writable(f for target in targets for f in target.route.fragments)
            works = await self._decide(transaction, routes, targets, entry.mark)
        except BaseException:
            with suppress(MediatorError):
                await self._settler.abandon(entry, targets)
            raise
        return await self._commit(entry, works, targets, transaction)

    async def _decide(
        self,
        transaction: Transaction,
        routes: dict[str, ClassRoute],
        targets: Sequence[Target],
        mark: str,
    ) -> list[Work]:
        """Mark the write set, and find out what its operations come to and whether they may."""
        held, foreign = await lock_all(self._marker, targets, mark)
        await self._refuse_foreign(foreign)
        if any(self._has_expired(one) for one in held):
            raise Blocked
        await self._refuse_split(transaction, routes)
        read = {(seen.class_name, seen.id) for seen in transaction.reads if seen.versions}
        works = await gathered(
            prepare(
                operation,
                one,
                was_read=(operation.class_name, operation.id) in read,
                mark=mark,
                calls=self._calls,
                read=self._plane.read_now,
            )
            for operation, one in zip(transaction.writes, held, strict=True)
        )
        await self._validate(transaction, routes, mark)
        return works

    async def _commit(
        self,
        entry: Entry,
        works: Sequence[Work],
        targets: Sequence[Target],
        transaction: Transaction,
    ) -> list[Outcome]:
        redo = [
            dump_work(work, write.class_name)
            for work, write in zip(works, transaction.writes, strict=True)
        ]
        try:
            committed = await self._log.commit(entry.mark, redo)
        except Unavailable as error:
            detail = "The catalogue does not answer; the transaction may have been committed."
            raise OutcomeUnknown(detail, system=error.system) from error
        if not committed:
            await self._settler.drop(entry.mark, targets)
            raise Blocked
        # What is committed is applied, whether its client waits for it or not.
        task = asyncio.create_task(self._settler.apply(entry.mark, works, targets))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def _check_reads(
        self, transaction: Transaction, routes: dict[str, ClassRoute], mark: str
    ) -> None:
        await self._refuse_split(transaction, routes)
        await self._validate(transaction, routes, mark)

    async def _validate(
        self, transaction: Transaction, routes: dict[str, ClassRoute], mark: str
    ) -> None:
        foreign = await validate(self._marker, transaction.reads, routes, mark, self._clock.now)
        await self._refuse_foreign(foreign)

    async def _refuse_foreign(self, foreign: Sequence[tuple[Fragment, str, str]]) -> None:
        """Get out of the way of other transactions, and settle those that are over."""
        if foreign:
            await gathered(self._settler.look_after(*one) for one in foreign)
            raise Blocked

    async def _refuse_split(self, transaction: Transaction, routes: dict[str, ClassRoute]) -> None:
        """Wait for writes over several systems to objects that the transaction touches.

        All marks are set, so none begins any more on what is written. Of what is read, a part that
        such a write has changed already was changed before now; if the write is not under way any
        more, validation finds its other parts changed too.
        """
        named = [(r.class_name, r.id) for r in transaction.reads]
        named += [(w.class_name, w.id) for w in transaction.writes]
        for name, route in routes.items():
            ids = [id_ for class_name, id_ in named if class_name == name]
            if len(route.fragments) > 1 and await self._plane.unsettled(
                transaction.database, name, ids
            ):
                raise Blocked

    async def _routes(self, transaction: Transaction) -> dict[str, ClassRoute]:
        """Find the classes of a transaction; one of those read that is gone fails validation.

        However many are unknown, one look for a newer model tells of all. There is a second one
        only if a write has to be refused after the first has found the class of another.
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
        return routes

    def _classes(self, database: str) -> Mapping[str, ClassRoute]:
        found = self._plane.model.databases.get(database)
        return found.classes if found else {}

    async def _end_expired(self, targets: Sequence[Target]) -> None:
        for target in targets:
            for fragment in target.route.fragments:
                if fragment.ttl_s is not None:
                    store = self._calls.systems.get(fragment.system)
                    try:
                        await self._calls.end_expired(store, [(fragment, target.id)])
                    except Locked:
                        raise Blocked from None

    def _has_expired(self, held: Held) -> bool:
        birth, now = held.birth, self._clock.now()
        if birth is None:
            return False
        return expired(held.route.anchor, Record(held.id, birth, {}, {}), now)


def _entry_of(transaction: Transaction) -> Entry:
    keyed = transaction.fingerprint is not None
    return Entry(
        uuid4().hex,
        transaction.database,
        [[write.class_name, write.id] for write in transaction.writes],
        transaction.operation if keyed else None,
        transaction.fingerprint,
    )
