"""Writes to many records of one class, with as few round trips as for one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from pymongo.errors import DocumentTooLarge

from mediator.stores.mongo.codec import ordered_text
from mediator.stores.mongo.layout import BOOKKEEPING, Document, Layout
from mediator.stores.mongo.outbox.entries import holds, settled_count
from mediator.stores.mongo.outbox.pending import Unrelayed
from mediator.stores.mongo.session import Look, Session
from mediator.stores.mongo.write.attempt import Attempt
from mediator.stores.mongo.write.decision import Change, Insertion
from mediator.stores.mongo.write.single import ENTIRE, SingleWriter
from mediator.stores.port import StoreTimeout, Write, WriteResult

__all__ = ["BulkWriter", "Call"]

Call: TypeAlias = tuple[int, Write]
"""A write, and its position among those that came together."""

_AT_ONCE: Final = 20
"""Writes that are decided on before the event loop goes on with what else is due."""

_OUTBOX: Final[Document] = {"_pending": 1, "_settled": 1}
_BEFORE: Final[Document] = BOOKKEEPING | {"_intent": 1, "_settled": 1}


@dataclass(frozen=True, slots=True)
class _Step:
    """What a write comes to if it has applied, and what it was stamped with."""

    result: WriteResult
    stamp: int


class BulkWriter:
    """Applies writes to different records together.

    Args:
        session: The session.
        single: Applies what has to be looked at alone.
        unrelayed: Is told of the records that were written.
    """

    def __init__(self, session: Session, single: SingleWriter, unrelayed: Unrelayed) -> None:
        self._session = session
        self._single = single
        self._unrelayed = unrelayed

    async def write(
        self,
        layout: Layout,
        calls: Sequence[Call],
        token: str,
        results: dict[int, WriteResult],
    ) -> None:
        """Carry out writes to different records together.

        A bulk write tells how many updates applied, not which: if some did not, the outbox of each
        record tells; those are settled one by one.
        """
        left = await self._under_marks(layout, calls, token, results)
        if left:
            await self._by_looking(layout, left, token, results)

    async def _under_marks(
        self,
        layout: Layout,
        calls: Sequence[Call],
        token: str,
        results: dict[int, WriteResult],
    ) -> Sequence[Call]:
        """Carry out writes under intents in one round trip; return the writes that are left.

        What a record was before is read in the same round trip, unless the answer is foreseen:
        under its intent nobody else changes that until the intent goes, with the write.
        """
        chances = await self._chances(layout, calls, token)
        if not chances:
            return calls
        unforeseen = [call for call, chance in chances if not chance.is_foreseen]
        looked = Look(_among(unforeseen), _BEFORE, len(unforeseen))
        steps = [{"q": chance.query, "u": chance.update} for _, chance in chances]
        try:
            found, applied = await self._session.find_and_change(layout, looked, steps)
        except DocumentTooLarge:
            return calls
        finally:
            for (_, write), _ in chances:
                self._unrelayed.note(write)
        before = {document["_id"]: document for document in found}
        tried: list[tuple[Call, _Step]] = []
        for call, chance in chances:
            document = before.get(ordered_text(call[1].id), {})
            if chance.is_foreseen or document.get("_intent") == call[1].intent:
                tried.append((call, _Step(chance.answer(document), chance.stamp)))
        if applied == len(tried) == len(chances):
            results.update((call[0], step.result) for call, step in tried)
        else:
            await self._sort_out(layout, tried, before, token, results)
        return [call for call in calls if call[0] not in results]

    async def _chances(
        self, layout: Layout, calls: Sequence[Call], token: str
    ) -> list[tuple[Call, Attempt]]:
        """Translate those of the writes that are under intents, and need not look first."""
        chances: list[tuple[Call, Attempt]] = []
        for number, call in enumerate(calls, 1):
            if not number % _AT_ONCE:
                await asyncio.sleep(0)
            if call[1].intent:
                chance = await self._single.chance(layout, call[1], token)
                if chance is not None and not chance.after:
                    chances.append((call, chance))
        return chances

    async def _by_looking(
        self,
        layout: Layout,
        calls: Sequence[Call],
        token: str,
        results: dict[int, WriteResult],
    ) -> None:
        """Read records at once, decide on each, and write them at once."""
        documents = await self._look(layout, calls, ENTIRE)
        steps: list[tuple[Call, Insertion | Change]] = []
        for number, call in enumerate(calls, 1):
            if not number % _AT_ONCE:
                await asyncio.sleep(0)
            before = documents.get(ordered_text(call[1].id))
            verdict = await self._single.judge(layout, call[1], before, token)
            if isinstance(verdict, WriteResult):
                results[call[0]] = verdict
            else:
                steps.append((call, verdict))
        try:
            if not steps or await self._session.apply_all(layout, [step for _, step in steps]):
                results.update((call[0], step.result) for call, step in steps)
            else:
                await self._sort_out(layout, steps, documents, token, results)
        finally:
            for (_, write), _ in steps:
                self._unrelayed.note(write)

    async def _sort_out(
        self,
        layout: Layout,
        steps: Sequence[tuple[Call, Insertion | Change | _Step]],
        before: Mapping[str, Document],
        token: str,
        results: dict[int, WriteResult],
    ) -> None:
        found = await self._look(layout, [call for call, _ in steps], _OUTBOX)
        for (position, write), step in steps:
            id_ = ordered_text(write.id)
            count = settled_count(before.get(id_))
            applied = holds(found.get(id_), write.operation, step.stamp, count)
            if applied is None and not write.intent:  # with an intent, no second time takes effect
                raise StoreTimeout("a write was followed by too many others to be found")
            results[position] = (
                step.result if applied else await self._single.decide(layout, write, token)
            )

    async def _look(
        self, layout: Layout, calls: Iterable[Call], projection: Document
    ) -> dict[str, Document]:
        found = self._session.collection(layout).find(_among(calls), projection)
        return {document["_id"]: document async for document in found}


def _among(calls: Iterable[Call]) -> Document:
    return {"_id": {"$in": [ordered_text(write.id) for _, write in calls]}}
