"""Applies writes: to one record in order, to many records of a class in bulk."""

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
from mediator.stores.mongo.write.folding import MAX_FOLDED, is_foldable
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

_MIN_BULK_CALLS: Final = 6


class Writer:
    """Applies writes; to one record in turn, because they would fail each other's conditions.

    Attributes:
        recent_writes: The recently written records.
        single: Applies one write.
    """

    def __init__(self, session: MongoSession, clock: Clock) -> None:
        self.recent_writes = RecentWrites()
        self._session, self.single = session, SingleWriter(session, clock)
        self._locks: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()

    async def write(self, calls: Sequence[Write], token: str) -> list[WriteResult]:
        """Apply writes; writes to one record keep their order.

        Raises `StoreUnavailable` only if nothing was done, except `StoreBusy`, which one record can
        cause after other writes were applied.
        """
        if len(calls) == 1:
            return [await self._write_one(calls[0], token)]
        await self._session.connections.reach()
        results: dict[int, WriteResult] = {}
        try:
            for wave in _waves(calls):
                await self._wave(wave, token, results)
        except StoreBusy:
            raise
        except StoreUnavailable as error:
            # "Nothing was done" is true of only one of them.
            raise StoreTimeout("only some of the writes may have been applied") from error
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
            if len(members) >= _MIN_BULK_CALLS or len(records) < len(members):
                work.append(self._write_bulk(layout, members, token, results))
            else:
                work += [self._write_separately(call, token, results) for call in members]
        await concurrently(work)

    async def _write_separately(
        self, call: Call, token: str, results: dict[int, WriteResult]
    ) -> None:
        results[call[0]] = await self._write_one(call[1], token)

    async def _write_bulk(
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

    async def _write_one(self, write: Write, token: str) -> WriteResult:
        layout = layout_of(write.fragment)
        async with self._lock(_key(write)):
            try:
                result = await self.single.write(layout, write, token)
            except BaseException:
                # It may nevertheless have taken effect.
                self.recent_writes.add(write)
                raise
        if result.status is Status.APPLIED:
            self.recent_writes.add(write)
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

    A wave has several writes to a record only if they are foldable. A write with the same claim as
    an earlier one comes in a later wave, which finds the claim taken.
    """
    waves: list[list[Call]] = []
    counts: defaultdict[Key, int] = defaultdict(int)
    foldable: defaultdict[Key, int] = defaultdict(int)
    waves_by_claim: dict[tuple[Fragment, str, str], int] = {}
    for position, write in enumerate(calls):
        key = _key(write)
        joins = is_foldable(write) and 0 < foldable[key] < MAX_FOLDED
        foldable[key] = foldable[key] + 1 if joins else int(is_foldable(write))
        wave = counts[key] - joins
        claim_keys = [
            (write.fragment, name, claim) for name, claim in write.claims.items() if claim
        ]
        wave = max(
            [
                wave,
                *(
                    waves_by_claim[claim_key] + 1
                    for claim_key in claim_keys
                    if claim_key in waves_by_claim
                ),
            ]
        )
        for claim_key in claim_keys:
            waves_by_claim.setdefault(claim_key, wave)
        counts[key] = wave + 1
        if wave == len(waves):
            waves.append([])
        waves[wave].append((position, write))
    return waves
