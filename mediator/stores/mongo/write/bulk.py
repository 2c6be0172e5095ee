"""Writes to many records of one class, in as few round trips as one write.

Updates of one record are folded into one write of it.
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
from mediator.stores.mongo.write.folding import folded, is_foldable, state_after
from mediator.stores.mongo.write.single import ENTIRE, SingleWriter, measure
from mediator.stores.port import Status, StoreTimeout, Write, WriteResult

__all__ = ["BulkWrite", "Call"]

Call: TypeAlias = tuple[int, Write]
"""A write and its position in the call."""

_AT_ONCE: Final = 20
"""Writes that are decided on before the event loop runs something else."""

_OUTBOX: Final[Document] = {"_pending": 1, "_acknowledged": 1}
_BEFORE: Final[Document] = BOOKKEEPING | {"_intent": 1, "_acknowledged": 1}


@dataclass(frozen=True, slots=True)
class _Expected:
    """The result of a write if it has applied, and what it was stamped with."""

    result: WriteResult
    stamp: int


@dataclass(frozen=True, slots=True)
class BulkWrite:
    """Writes to records of one class, which are applied together; those to one are foldable.

    Attributes:
        session: Sends them.
        single: Applies what has to go alone.
        recent_writes: Where written records are noted.
        layout: The layout of the class.
        token: What the writes are fenced by; empty: nothing.
        results: Gets the results, by the positions of the writes.
    """

    session: MongoSession
    single: SingleWriter
    recent_writes: RecentWrites
    layout: Layout
    token: str
    results: dict[int, WriteResult]

    async def apply(self, calls: Sequence[Call]) -> None:
        """Apply writes together.

        A bulk write returns how many updates applied, not which. If some did not, the outbox of
        each record shows which, and those writes are applied one by one.
        """
        left = await self._under_intents(calls)
        if left:
            await self._by_reading(left)

    async def _under_intents(self, calls: Sequence[Call]) -> Sequence[Call]:
        """Apply writes under intents in one round trip; return the writes that are left.

        What a record was before is read in the same round trip, unless the result is fixed:
        under its intent no other write changes that until the intent goes, with the write.
        """
        attempts = await self._attempts(calls)
        if not attempts:
            return calls
        to_read = [call for call, attempt in attempts if not attempt.is_fixed]
        lookup = Lookup(among(write.id for _, write in to_read), _BEFORE, len(to_read))
        steps = [{"q": attempt.query, "u": attempt.update} for _, attempt in attempts]
        try:
            found, applied = await self.session.find_and_change(self.layout, lookup, steps)
        except DocumentTooLarge:
            return calls
        finally:
            for (_, write), _ in attempts:
                self.recent_writes.note(write)
        before = {document["_id"]: document for document in found}
        sent: list[tuple[Call, _Expected]] = []
        for call, attempt in attempts:
            document = before.get(ordered_text(call[1].id), {})
            if attempt.is_fixed or document.get("_intent") == call[1].intent:
                sent.append((call, _Expected(attempt.result_of(document), attempt.stamp)))
        if applied == len(sent) == len(attempts):
            self.results.update((call[0], step.result) for call, step in sent)
        else:
            await self._resolve_each(sent, before)
        return [call for call in calls if call[0] not in self.results]

    async def _attempts(self, calls: Sequence[Call]) -> list[tuple[Call, UpdateAttempt]]:
        """Translate those of the writes that are under intents, and need no read first."""
        attempts: list[tuple[Call, UpdateAttempt]] = []
        for number, call in enumerate(calls, 1):
            if not number % _AT_ONCE:
                await asyncio.sleep(0)
            if call[1].intent:
                attempt = await self.single.attempt(self.layout, call[1], self.token)
                if attempt is not None and not attempt.after:
                    attempts.append((call, attempt))
        return attempts

    async def _by_reading(self, calls: Sequence[Call]) -> None:
        """Read records together, decide on each, and write them together."""
        documents = await self._lookup(calls, ENTIRE)
        await measure(self.session, self.layout, documents.values())
        wanted = [(write.id, write.operation) for _, write in calls if write.remember is not None]
        await add_archived(self.session, self.layout, documents, wanted)
        steps, later = await self._decide(calls, documents)
        steps = await self._unclaimed(steps)
        try:
            if not steps or await self.session.apply_all(self.layout, _by_record(steps)):
                self.results.update((call[0], step.result) for call, step in steps)
            else:
                await self._resolve_each(steps, documents)
        finally:
            for (_, write), _ in steps:
                self.recent_writes.note(write)
        for position, write in later:
            self.results[position] = await self.single.read_and_write(
                self.layout, write, self.token
            )

    async def _decide(
        self, calls: Sequence[Call], documents: Mapping[str, Document]
    ) -> tuple[list[tuple[Call, Insertion | ConditionalUpdate]], list[Call]]:
        """Decide on each write, by the state that those before it lead to.

        Returns what is to be written, and the writes that have to wait for it: a refusal by a state
        that is not written yet may be wrong, and what follows it keeps its order.
        """
        steps: list[tuple[Call, Insertion | ConditionalUpdate]] = []
        states, waiting = dict(documents), set[str]()
        later: list[Call] = []
        for number, call in enumerate(calls, 1):
            if not number % _AT_ONCE:
                await asyncio.sleep(0)
            id_ = ordered_text(call[1].id)
            before = states.get(id_)
            if id_ in waiting:
                later.append(call)
                continue
            decision = await self.single.decide(self.layout, call[1], before, self.token)
            if isinstance(decision, Insertion | ConditionalUpdate):
                steps.append((call, decision))
                if isinstance(decision, ConditionalUpdate) and is_foldable(call[1]):
                    states[id_] = state_after(before or {}, decision)
            elif decision is not None and before is documents.get(id_):
                self.results[call[0]] = decision
            else:
                waiting.add(id_)
                later.append(call)
        return steps, later

    async def _unclaimed(
        self, steps: Sequence[tuple[Call, Insertion | ConditionalUpdate]]
    ) -> list[tuple[Call, Insertion | ConditionalUpdate]]:
        """Return the steps that claim nothing of other records; the others are refused."""
        writes = [write for (_, write), _ in steps if write.claims]
        taken = await holders(self.session, self.layout, writes) if writes else {}
        for (position, write), _ in steps:
            if write.id in taken:
                self.results[position] = WriteResult(Status.TAKEN, taken=taken[write.id])
        return [step for step in steps if step[0][1].id not in taken]

    async def _resolve_each(
        self,
        steps: Sequence[tuple[Call, Insertion | ConditionalUpdate | _Expected]],
        before: Mapping[str, Document],
    ) -> None:
        """Find out which steps applied, by the outboxes of their records; write the others."""
        found = await self._lookup([call for call, _ in steps], _OUTBOX)
        for (position, write), step in steps:
            id_ = ordered_text(write.id)
            count = acknowledged_count(before.get(id_))
            applied = has_applied(found.get(id_), write.operation, step.stamp, count)
            # Under an intent a second attempt is safe: the first took the intent with it.
            if applied is None and not write.intent:
                raise StoreTimeout("too many later writes hide whether a write has applied")
            self.results[position] = (
                step.result
                if applied
                else await self.single.read_and_write(self.layout, write, self.token)
            )

    async def _lookup(self, calls: Iterable[Call], projection: Document) -> dict[str, Document]:
        found = self.session.collection(self.layout).find(
            among(write.id for _, write in calls), projection
        )
        return {document["_id"]: document async for document in found}


def _by_record(
    steps: Iterable[tuple[Call, Insertion | ConditionalUpdate]],
) -> list[Insertion | ConditionalUpdate]:
    """Return one step for each record."""
    of: dict[str, list[Insertion | ConditionalUpdate]] = {}
    for (_, write), step in steps:
        of.setdefault(write.id, []).append(step)
    return [
        own[0]
        if len(own) == 1
        else folded([step for step in own if isinstance(step, ConditionalUpdate)])
        for own in of.values()
    ]
