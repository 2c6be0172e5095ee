"""Writes to many records of one class, in as few round trips as one write."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from pymongo.errors import DocumentTooLarge

from mediator.stores.mongo.codec import ordered_text
from mediator.stores.mongo.layout import BOOKKEEPING, Document, Layout
from mediator.stores.mongo.outbox.entries import acknowledged_count, has_applied
from mediator.stores.mongo.outbox.pending import RecentWrites
from mediator.stores.mongo.session import Lookup, Session
from mediator.stores.mongo.write.attempt import Attempt
from mediator.stores.mongo.write.decision import Change, Insertion
from mediator.stores.mongo.write.single import ENTIRE, SingleWriter
from mediator.stores.port import StoreTimeout, Write, WriteResult

__all__ = ["BulkWriter", "Call"]

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


class BulkWriter:
    """Applies writes to different records together; `single` applies what has to go alone."""

    def __init__(self, session: Session, single: SingleWriter, recent_writes: RecentWrites) -> None:
        self._session = session
        self._single = single
        self._recent_writes = recent_writes

    async def write(
        self,
        layout: Layout,
        calls: Sequence[Call],
        token: str,
        results: dict[int, WriteResult],
    ) -> None:
        """Apply writes to different records together.

        A bulk write returns how many updates applied, not which. If some did not, the outbox of
        each record shows which, and those writes are applied one by one.
        """
        left = await self._under_intents(layout, calls, token, results)
        if left:
            await self._by_reading(layout, left, token, results)

    async def _under_intents(
        self,
        layout: Layout,
        calls: Sequence[Call],
        token: str,
        results: dict[int, WriteResult],
    ) -> Sequence[Call]:
        """Apply writes under intents in one round trip; return the writes that are left.

        What a record was before is read in the same round trip, unless the result is fixed:
        under its intent no other write changes that until the intent goes, with the write.
        """
        attempts = await self._attempts(layout, calls, token)
        if not attempts:
            return calls
        to_read = [call for call, attempt in attempts if not attempt.is_fixed]
        lookup = Lookup(_among(to_read), _BEFORE, len(to_read))
        steps = [{"q": attempt.query, "u": attempt.update} for _, attempt in attempts]
        try:
            found, applied = await self._session.find_and_change(layout, lookup, steps)
        except DocumentTooLarge:
            return calls
        finally:
            for (_, write), _ in attempts:
                self._recent_writes.note(write)
        before = {document["_id"]: document for document in found}
        sent: list[tuple[Call, _Expected]] = []
        for call, attempt in attempts:
            document = before.get(ordered_text(call[1].id), {})
            if attempt.is_fixed or document.get("_intent") == call[1].intent:
                sent.append((call, _Expected(attempt.result_of(document), attempt.stamp)))
        if applied == len(sent) == len(attempts):
            results.update((call[0], step.result) for call, step in sent)
        else:
            await self._resolve_each(layout, sent, before, token, results)
        return [call for call in calls if call[0] not in results]

    async def _attempts(
        self, layout: Layout, calls: Sequence[Call], token: str
    ) -> list[tuple[Call, Attempt]]:
        """Translate those of the writes that are under intents, and need no read first."""
        attempts: list[tuple[Call, Attempt]] = []
        for number, call in enumerate(calls, 1):
            if not number % _AT_ONCE:
                await asyncio.sleep(0)
            if call[1].intent:
                attempt = await self._single.attempt(layout, call[1], token)
                if attempt is not None and not attempt.after:
                    attempts.append((call, attempt))
        return attempts

    async def _by_reading(
        self,
        layout: Layout,
        calls: Sequence[Call],
        token: str,
        results: dict[int, WriteResult],
    ) -> None:
        """Read records together, decide on each, and write them together."""
        documents = await self._lookup(layout, calls, ENTIRE)
        steps: list[tuple[Call, Insertion | Change]] = []
        for number, call in enumerate(calls, 1):
            if not number % _AT_ONCE:
                await asyncio.sleep(0)
            before = documents.get(ordered_text(call[1].id))
            decision = await self._single.decide(layout, call[1], before, token)
            if isinstance(decision, WriteResult):
                results[call[0]] = decision
            else:
                steps.append((call, decision))
        try:
            if not steps or await self._session.apply_all(layout, [step for _, step in steps]):
                results.update((call[0], step.result) for call, step in steps)
            else:
                await self._resolve_each(layout, steps, documents, token, results)
        finally:
            for (_, write), _ in steps:
                self._recent_writes.note(write)

    async def _resolve_each(
        self,
        layout: Layout,
        steps: Sequence[tuple[Call, Insertion | Change | _Expected]],
        before: Mapping[str, Document],
        token: str,
        results: dict[int, WriteResult],
    ) -> None:
        """Find out which steps applied, by the outboxes of their records; write the others."""
        found = await self._lookup(layout, [call for call, _ in steps], _OUTBOX)
        for (position, write), step in steps:
            id_ = ordered_text(write.id)
            count = acknowledged_count(before.get(id_))
            applied = has_applied(found.get(id_), write.operation, step.stamp, count)
            # Under an intent a second attempt is safe: the first took the intent with it.
            if applied is None and not write.intent:
                raise StoreTimeout("too many later writes hide whether a write has applied")
            results[position] = (
                step.result if applied else await self._single.read_and_write(layout, write, token)
            )

    async def _lookup(
        self, layout: Layout, calls: Iterable[Call], projection: Document
    ) -> dict[str, Document]:
        found = self._session.collection(layout).find(_among(calls), projection)
        return {document["_id"]: document async for document in found}


def _among(calls: Iterable[Call]) -> Document:
    return {"_id": {"$in": [ordered_text(write.id) for _, write in calls]}}
