"""Applies writes: those to one record in order, those to many records of a class in bulk."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final, TypeAlias
from weakref import WeakValueDictionary

from mediator.base.clock import Clock
from mediator.base.concurrency import concurrently
from mediator.stores.mongo.layout import Layout, layout_of
from mediator.stores.mongo.outbox.pending import RecentWrites
from mediator.stores.mongo.session import MongoSession
from mediator.stores.mongo.write.bulk import BulkWrite, Call
from mediator.stores.mongo.write.folding import MOST_FOLDED, is_foldable
from mediator.stores.mongo.write.single import SingleWriter
from mediator.stores.port import (
    Fragment,
    Status,
    StoreBusy,
    StoreTimeout,
    StoreUnavailable,
    Write,
    WriteResult,
)

__all__ = ["Writer"]

Key: TypeAlias = tuple[str, str, str]

_WORTH_A_BULK: Final = 6


class Writer:
    """Applies writes; those to one record in turn, as they would fail each other's conditions.

    Attributes:
        recent_writes: The records that were written.
        single: Applies one write.
    """

    def __init__(self, session: MongoSession, clock: Clock) -> None:
        self.recent_writes = RecentWrites()
        self._session, self.single = session, SingleWriter(session, clock)
        self._locks: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()

    async def write(self, calls: Sequence[Write], token: str) -> list[WriteResult]:
        """Apply writes; those to one record in their order.

        Raises `StoreUnavailable` only if nothing was done, but for `StoreBusy`: one of them met it.
        """
        if len(calls) == 1:
            return [await self._one(calls[0], token)]
        await self._session.connections.reach()
        results: dict[int, WriteResult] = {}
        try:
            for wave in _waves(calls):
                await self._wave(wave, token, results)
        except StoreBusy:
            raise
        except StoreUnavailable as error:
            # That nothing was done is true of one of them.
            raise StoreTimeout("a part of the writes may have been done") from error
        return [results[position] for position in range(len(calls))]

    async def _wave(
        self, wave: Sequence[Call], token: str, results: dict[int, WriteResult]
    ) -> None:
        classes: defaultdict[Layout, list[Call]] = defaultdict(list)
        for call in wave:
            classes[layout_of(call[1].fragment)].append(call)
        work: list[Coroutine[Any, Any, None]] = []
        for layout, members in classes.items():
            records = {write.id for _, write in members}
            if len(members) >= _WORTH_A_BULK or len(records) < len(members):
                work.append(self._together(layout, members, token, results))
            else:
                work += [self._alone(call, token, results) for call in members]
        await concurrently(work)

    async def _alone(self, call: Call, token: str, results: dict[int, WriteResult]) -> None:
        results[call[0]] = await self._one(call[1], token)

    async def _together(
        self,
        layout: Layout,
        calls: Sequence[Call],
        token: str,
        results: dict[int, WriteResult],
    ) -> None:
        async with AsyncExitStack() as locks:
            for key in sorted({_key(write) for _, write in calls}):
                await locks.enter_async_context(self._lock(key))
            session, single, recent = self._session, self.single, self.recent_writes
            await BulkWrite(session, single, recent, layout, token, results).apply(calls)

    async def _one(self, write: Write, token: str) -> WriteResult:
        layout = layout_of(write.fragment)
        async with self._lock(_key(write)):
            try:
                result = await self.single.write(layout, write, token)
            except BaseException:
                # It may have taken effect all the same.
                self.recent_writes.note(write)
                raise
        if result.status is Status.APPLIED:
            self.recent_writes.note(write)
        return result

    def _lock(self, key: Key) -> asyncio.Lock:
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        return lock


def _key(write: Write) -> Key:
    return (write.fragment.database_id, write.fragment.class_name, write.id)


def _waves(calls: Sequence[Write]) -> list[list[Call]]:
    """Split calls so that each wave has a record at most once, in the order of its calls.

    It has one several times if all its writes are foldable. Those that claim what an earlier one
    does come in the wave after it, which finds it taken.
    """
    waves: list[list[Call]] = []
    counts: defaultdict[Key, int] = defaultdict(int)
    foldable: defaultdict[Key, int] = defaultdict(int)
    claimed: dict[tuple[Fragment, str, str], int] = {}
    for position, write in enumerate(calls):
        key = _key(write)
        joins = is_foldable(write) and 0 < foldable[key] < MOST_FOLDED
        foldable[key] = foldable[key] + 1 if joins else int(is_foldable(write))
        wave = counts[key] - joins
        made = [(write.fragment, name, claim) for name, claim in write.claims.items() if claim]
        wave = max([wave, *(claimed[each] + 1 for each in made if each in claimed)])
        for each in made:
            claimed.setdefault(each, wave)
        counts[key] = wave + 1
        if wave == len(waves):
            waves.append([])
        waves[wave].append((position, write))
    return waves
