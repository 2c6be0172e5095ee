"""Writes to many records of one class, in as few round trips as one write.

Updates of one record are folded into one write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from pymongo.errors import DocumentTooLarge

from mediator.stores.mongo.claims import holders
from mediator.stores.mongo.codec import ordered_text
from mediator.stores.mongo.layout import BOOKKEEPING, Document, Layout, among
from mediator.stores.mongo.outbox.archive import add_archived
from mediator.stores.mongo.outbox.entries import acknowledged_count, has_applied
from mediator.stores.mongo.outbox.pending import RecentWrites
from mediator.stores.mongo.session import Lookup, MongoSession
from mediator.stores.mongo.write.attempt import UpdateAttempt
from mediator.stores.mongo.write.decision import ConditionalUpdate, Insertion
from mediator.stores.mongo.write.folding import fold, is_foldable, state_after
from mediator.stores.mongo.write.single import DECISION_PROJECTION, SingleWriter, measure
from mediator.stores.port import Status, StoreTimeout, Write, WriteResult

__all__ = ["BulkWrite", "Call"]

Call: TypeAlias = tuple[int, Write]
"""A write and its position in the call."""

_WRITES_PER_TICK: Final = 20
"""Number of writes that are decided before yielding to the event loop."""

_OUTBOX: Final[Document] = {"_pending": 1, "_acknowledged": 1}
_BEFORE: Final[Document] = BOOKKEEPING | {"_intent": 1, "_acknowledged": 1}


@dataclass(frozen=True, slots=True)
class _ExpectedResult:
    """The result of a write if it was applied, and its stamp."""

    result: WriteResult
    stamp: int


@dataclass(frozen=True, slots=True)
class BulkWrite:
    """Writes to records of one class, applied together; several to one record are foldable.

    Attributes:
        session: The session that sends them.
        single: Applies writes that must be separate.
        recent_writes: The recently written records.
        layout: The layout of the class.
        token: The fencing token of the writes; empty: none.
        results: The results so far, by the positions of the writes.
    """

    session: MongoSession
    single: SingleWriter
    recent_writes: RecentWrites
    layout: Layout
    token: str
    results: dict[int, WriteResult]

    async def apply(self, calls: Sequence[Call]) -> None:
        """Apply writes together.

        A bulk write returns the number of applied updates, not which. If some were not applied, the
        outbox of each record shows which, and those writes are applied one by one.
        """
        remaining = await self._apply_under_intents(calls)
        if remaining:
            await self._read_and_apply(remaining)

    async def _apply_under_intents(self, calls: Sequence[Call]) -> Sequence[Call]:
        """Apply writes under intents in one round trip; return the remaining writes.

        The previous state of a record is read in the same round trip, unless the result is fixed:
        under the intent no other write changes it until the write removes the intent.
        """
        attempts = await self._attempts(calls)
        if not attempts:
            return calls
        to_read = [call for call, attempt in attempts if not attempt.is_fixed]
        lookup = Lookup(among(write.id for _, write in to_read), _BEFORE, len(to_read))
        steps = [{"q": attempt.query, "u": attempt.update} for _, attempt in attempts]
        try:
            documents, applied = await self.session.find_and_change(self.layout, lookup, steps)
        except DocumentTooLarge:
            return calls
        finally:
            for (_, write), _ in attempts:
                self.recent_writes.add(write)
        before = {document["_id"]: document for document in documents}
        sent: list[tuple[Call, _ExpectedResult]] = []
        for call, attempt in attempts:
            document = before.get(ordered_text(call[1].id), {})
            if attempt.is_fixed or document.get("_intent") == call[1].intent:
                sent.append((call, _ExpectedResult(attempt.result_of(document), attempt.stamp)))
        if applied == len(sent) == len(attempts):
            self.results.update((call[0], step.result) for call, step in sent)
        else:
            await self._resolve_each(sent, before)
        return [call for call in calls if call[0] not in self.results]

    async def _attempts(self, calls: Sequence[Call]) -> list[tuple[Call, UpdateAttempt]]:
        """Translate the writes under intents that need no read first."""
        attempts: list[tuple[Call, UpdateAttempt]] = []
        for number, call in enumerate(calls, 1):
            if not number % _WRITES_PER_TICK:
                await asyncio.sleep(0)
            if call[1].intent:
                attempt = await self.single.attempt(self.layout, call[1], self.token)
                if attempt is not None and not attempt.after:
                    attempts.append((call, attempt))
        return attempts

    async def _read_and_apply(self, calls: Sequence[Call]) -> None:
        """Read records together, decide on each, and write them together."""
        documents = await self._lookup(calls, DECISION_PROJECTION)
        await measure(self.session, self.layout, documents.values())
        operations = [
            (write.id, write.operation) for _, write in calls if write.remember is not None
        ]
        await add_archived(self.session, self.layout, documents, operations)
        steps, deferred = await self._decide(calls, documents)
        steps = await self._without_taken_claims(steps)
        try:
            if not steps or await self.session.apply_all(self.layout, _by_record(steps)):
                self.results.update((call[0], step.result) for call, step in steps)
            else:
                await self._resolve_each(steps, documents)
        finally:
            for (_, write), _ in steps:
                self.recent_writes.add(write)
        for position, write in deferred:
            self.results[position] = await self.single.read_and_write(
                self.layout, write, self.token
            )

    async def _decide(
        self, calls: Sequence[Call], documents: Mapping[str, Document]
    ) -> tuple[list[tuple[Call, Insertion | ConditionalUpdate]], list[Call]]:
        """Decide each write on the state after the writes before it.

        Returns the steps to write, and the writes that must wait for them: a refusal by a state
        that is not yet written can be wrong, and the writes after it keep their order.
        """
        steps: list[tuple[Call, Insertion | ConditionalUpdate]] = []
        states, blocked_ids = dict(documents), set[str]()
        deferred: list[Call] = []
        for number, call in enumerate(calls, 1):
            if not number % _WRITES_PER_TICK:
                await asyncio.sleep(0)
            id_ = ordered_text(call[1].id)
            before = states.get(id_)
            if id_ in blocked_ids:
                deferred.append(call)
                continue
            decision = await self.single.decide(self.layout, call[1], before, self.token)
            if isinstance(decision, Insertion | ConditionalUpdate):
                steps.append((call, decision))
                if isinstance(decision, ConditionalUpdate) and is_foldable(call[1]):
                    states[id_] = state_after(before or {}, decision)
            elif decision is not None and before is documents.get(id_):
                self.results[call[0]] = decision
            else:
                blocked_ids.add(id_)
                deferred.append(call)
        return steps, deferred

    async def _without_taken_claims(
        self, steps: Sequence[tuple[Call, Insertion | ConditionalUpdate]]
    ) -> list[tuple[Call, Insertion | ConditionalUpdate]]:
        """Return the steps whose claims are free; the others are refused."""
        writes = [write for (_, write), _ in steps if write.claims]
        taken = await holders(self.session, self.layout, writes) if writes else {}
        for (position, write), _ in steps:
            if write.id in taken:
                self.results[position] = WriteResult(Status.TAKEN, taken=taken[write.id])
        return [step for step in steps if step[0][1].id not in taken]

    async def _resolve_each(
        self,
        steps: Sequence[tuple[Call, Insertion | ConditionalUpdate | _ExpectedResult]],
        before: Mapping[str, Document],
    ) -> None:
        """Find out from the outboxes of records which steps were applied; write the others."""
        documents = await self._lookup([call for call, _ in steps], _OUTBOX)
        for (position, write), step in steps:
            id_ = ordered_text(write.id)
            count = acknowledged_count(before.get(id_))
            applied = has_applied(documents.get(id_), write.operation, step.stamp, count)
            # Under an intent a retry is safe: the first attempt removed the intent.
            if applied is None and not write.intent:
                raise StoreTimeout("too many later writes hide whether a write has applied")
            self.results[position] = (
                step.result
                if applied
                else await self.single.read_and_write(self.layout, write, self.token)
            )

    async def _lookup(self, calls: Iterable[Call], projection: Document) -> dict[str, Document]:
        cursor = self.session.collection(self.layout).find(
            among(write.id for _, write in calls), projection
        )
        return {document["_id"]: document async for document in cursor}


def _by_record(
    steps: Iterable[tuple[Call, Insertion | ConditionalUpdate]],
) -> list[Insertion | ConditionalUpdate]:
    """Return one step for each record."""
    steps_by_id: dict[str, list[Insertion | ConditionalUpdate]] = {}
    for (_, write), step in steps:
        steps_by_id.setdefault(write.id, []).append(step)
    return [
        record_steps[0]
        if len(record_steps) == 1
        else fold([step for step in record_steps if isinstance(step, ConditionalUpdate)])
        for record_steps in steps_by_id.values()
    ]
