"""Writes: first in one round trip; where that does not apply, by looking and deciding."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final, TypeAlias
from weakref import WeakValueDictionary

from pymongo.errors import DuplicateKeyError, OperationFailure

from mediator.clock import Clock
from mediator.offload import is_large, offload
from mediator.stores.mongo.attempt import attempt
from mediator.stores.mongo.layout import BOOKKEEPING, Document, Layout, layout_of
from mediator.stores.mongo.outbox import FULL, holds, settled_count
from mediator.stores.mongo.session import Session
from mediator.stores.mongo.text import ordered_text
from mediator.stores.mongo.unrelayed import Unrelayed
from mediator.stores.mongo.verdict import Change, Insertion, Verdict, judge
from mediator.stores.port import (
    Status,
    StoreBusy,
    StoreTimeout,
    StoreUnavailable,
    Write,
    WriteKind,
    WriteResult,
)

__all__ = ["Stamps", "Writer"]

Key: TypeAlias = tuple[str, str, str]
Call: TypeAlias = tuple[int, Write]

_TRIES: Final = 64
_FIRST_WAIT_S: Final = 0.0005
_LONGEST_WAIT_S: Final = 0.05
_WORTH_A_BULK: Final = 6
_AT_ONCE: Final = 20
"""Writes that are decided on before the event loop goes on with what else is due."""

_FOLLOWED_US: Final = 1_000_000
"""How far ahead of our clock another may be and still be followed."""

_ENTIRE: Final[Document] = BOOKKEEPING | {
    "values": 1,
    "_ops": 1,
    "_settled": 1,
    "_fences": 1,
    "_mark": 1,
}

_PATIENCE: Final = 20
"""Tries, within about a second, before a write gives up on a full outbox."""

_ID: Final[Document] = {"_id": 1}
_OUTBOX: Final[Document] = {"_pending": 1, "_settled": 1}

_UNFIT: Final = frozenset({2, 14, 28})
"""BadValue, TypeMismatch, PathNotViable: a modifier met a value that its guard let through."""


class Stamps:
    """The store's clock, in microseconds, never twice the same.

    It follows other processes whose clocks are slightly ahead: a write whose version is taken
    already costs two more round trips.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = 0

    def next(self) -> int:
        """Return the time, later than every time returned before, unless the clock went back."""
        now = int(self._clock.now() * 1_000_000)
        ahead = now <= self._last < now + _FOLLOWED_US
        self._last = self._last + 1 if ahead else now
        return self._last

    def seen(self, versions: Iterable[Any]) -> None:
        """Follow versions that are ahead by less than a second."""
        now = int(self._clock.now() * 1_000_000)
        for version in versions:
            if self._last < version < now + _FOLLOWED_US:
                self._last = int(version)


class Writer:
    """Applies writes.

    Writes of this process to one record take turns: they would only fail each other's conditions.

    Attributes:
        unrelayed: The records that were written.
    """

    def __init__(self, session: Session, clock: Clock) -> None:
        self._session = session
        self.unrelayed = Unrelayed()
        self._stamps = Stamps(clock)
        self._turns: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()

    async def write(self, calls: Sequence[Write], token: str) -> list[WriteResult]:
        """Apply writes; those to one record in their order."""
        if len(calls) == 1:
            return [await self._one(calls[0], token)]
        results: dict[int, WriteResult] = {}
        for wave in _waves(calls):
            await self._wave(wave, token, results)
        return [results[position] for position in range(len(calls))]

    async def _wave(
        self, wave: Sequence[Call], token: str, results: dict[int, WriteResult]
    ) -> None:
        classes: defaultdict[Layout, list[Call]] = defaultdict(list)
        for call in wave:
            classes[layout_of(call[1].fragment)].append(call)
        work: list[Awaitable[None]] = []
        for layout, members in classes.items():
            if len(members) >= _WORTH_A_BULK:
                work.append(self._many(layout, members, token, results))
            else:
                work += [self._single(call, token, results) for call in members]
        await _all(work)

    async def _single(self, call: Call, token: str, results: dict[int, WriteResult]) -> None:
        results[call[0]] = await self._one(call[1], token)

    async def _one(self, write: Write, token: str) -> WriteResult:
        layout = layout_of(write.fragment)
        async with self._turn(_key(write)):
            try:
                result = await self._attempt(layout, write, token)
                if result is None:
                    result = await self._decide(layout, write, token)
            except BaseException:
                # It may have taken effect all the same.
                self.unrelayed.note(write)
                raise
        if result.status is Status.APPLIED:
            self.unrelayed.note(write)
        return result

    def _turn(self, key: Key) -> asyncio.Lock:
        lock = self._turns.get(key)
        if lock is None:
            lock = self._turns[key] = asyncio.Lock()
        return lock

    async def _attempt(self, layout: Layout, write: Write, token: str) -> WriteResult | None:
        """Try in one round trip; None if that did not apply."""
        stamp = self._stamps.next()
        if write.kind is WriteKind.CREATE and not (write.expect or write.mark):
            is_long = is_large(write.values)
            verdict = await offload(is_long, judge, layout, write, None, stamp, token)
            return await self._apply(layout, verdict)
        chance = await offload(is_large(write.values), attempt, layout, write, stamp, token)
        if chance is None:
            return None
        try:
            applied, document = await self._session.modify(layout, chance)
        except DuplicateKeyError:
            return None
        except OperationFailure as error:
            if error.code in _UNFIT:
                return None
            raise
        return chance.answer(document) if applied else None

    async def _decide(self, layout: Layout, write: Write, token: str) -> WriteResult:
        """Look at the record, decide, and write if it is still the same; again if it is not."""
        for tries in range(_TRIES):
            document = await self._session.find(layout, write.id, _ENTIRE)
            verdict = await self._judge(layout, write, document, token)
            result = await self._apply(layout, verdict)
            if result is not None:
                return result
            if tries >= _PATIENCE and await self._session.find(layout, write.id, _ID, FULL):
                raise StoreBusy("this record takes no more writes until its changes are relayed")
            await asyncio.sleep(min(_FIRST_WAIT_S * 2**tries, _LONGEST_WAIT_S))
        raise StoreUnavailable("too many others write this record")

    async def _judge(
        self, layout: Layout, write: Write, document: Document | None, token: str
    ) -> Verdict:
        self._stamps.seen((document or {}).get("versions", {}).values())
        is_long = is_large(write.values) or is_large(document)
        stamp = self._stamps.next()
        return await offload(is_long, judge, layout, write, document, stamp, token)

    async def _apply(self, layout: Layout, verdict: Verdict) -> WriteResult | None:
        if isinstance(verdict, WriteResult):
            return verdict
        return verdict.result if await self._session.apply(layout, verdict) else None

    async def _many(
        self,
        layout: Layout,
        calls: Sequence[Call],
        token: str,
        results: dict[int, WriteResult],
    ) -> None:
        """Read records at once, decide on each, and write them at once.

        A bulk write tells how many updates applied, not which: if some did not, the outbox of each
        record tells; those are settled one by one.
        """
        async with AsyncExitStack() as turns:
            for key in sorted(_key(write) for _, write in calls):
                await turns.enter_async_context(self._turn(key))
            documents = await self._look(layout, calls, _ENTIRE)
            steps: list[tuple[Call, Insertion | Change]] = []
            for number, call in enumerate(calls, 1):
                if not number % _AT_ONCE:
                    await asyncio.sleep(0)
                before = documents.get(call[1].id)
                verdict = await self._judge(layout, call[1], before, token)
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
                    self.unrelayed.note(write)

    async def _sort_out(
        self,
        layout: Layout,
        steps: Sequence[tuple[Call, Insertion | Change]],
        before: Mapping[str, Document],
        token: str,
        results: dict[int, WriteResult],
    ) -> None:
        found = await self._look(layout, [call for call, _ in steps], _OUTBOX)
        for (position, write), step in steps:
            count = settled_count(before.get(write.id))
            applied = holds(found.get(write.id), write.operation, step.stamp, count)
            if applied is None:
                raise StoreTimeout("a write was followed by too many others to be found")
            results[position] = step.result if applied else await self._decide(layout, write, token)

    async def _look(
        self, layout: Layout, calls: Iterable[Call], projection: Document
    ) -> dict[str, Document]:
        ids = {ordered_text(write.id): write.id for _, write in calls}
        found = self._session.collection(layout).find({"_id": {"$in": list(ids)}}, projection)
        return {ids[document["_id"]]: document async for document in found}


def _key(write: Write) -> Key:
    return (write.fragment.database_id, write.fragment.class_name, write.id)


def _waves(calls: Sequence[Write]) -> list[list[Call]]:
    """Split calls so that each wave has a record at most once, in the order of its calls."""
    waves: list[list[Call]] = []
    met: defaultdict[Key, int] = defaultdict(int)
    for position, write in enumerate(calls):
        wave = met[_key(write)]
        met[_key(write)] += 1
        if wave == len(waves):
            waves.append([])
        waves[wave].append((position, write))
    return waves


async def _all(work: Sequence[Awaitable[None]]) -> None:
    """Wait for everything, then raise the first error: nothing goes on behind the caller's back."""
    if len(work) == 1:
        await work[0]
        return
    for outcome in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
