"""Recovery of writes that were not ended: their replica died, or their store did not answer.

Such a write keeps its keys uncacheable, which is safe and slow. What stands of it is looked up, and
it is ended like any other, purges included (docs/protocol.md, "Recovery"). Those of a system that
does not answer keep no others waiting: each partition has its share, and of one partition all have
their turn before any is tried again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from app.coherence.write_guard import answered
from mediator.base.concurrency import concurrently
from mediator.base.errors import MediatorError
from mediator.model.guard import CacheKey, WriteGuard
from sketch.protocol.port import Partition, PendingWrite, ServerSketch, SketchUnavailable

__all__ = ["Recovery", "ResolvesWrites"]

BATCH: Final = 100
"""Writes that are listed at a time, of all partitions together."""
_SHARE: Final = 10
"""Of these, how many of a partition at least, however many there are."""
_AT_ONCE: Final = 16
"""Writes that are recovered at the same time."""

_log = logging.getLogger("portolan.coherence")


class ResolvesWrites(Protocol):
    async def resolve(
        self, database: str, keys: Sequence[CacheKey], token: str
    ) -> Mapping[CacheKey, int]:
        """Return the versions that stand after a write; raises `Unavailable`."""


@dataclass(eq=False)
class Recovery:
    """Recovers orphaned writes of all replicas.

    Attributes:
        _passed: By partition, how many orphans at the front of its list have failed, and are passed
            over until all others have had their turn.
    """

    _sketch: ServerSketch
    _guard: WriteGuard
    _resolver: ResolvesWrites
    _partitions: Callable[[], Sequence[Partition]]
    _passed: Counter[Partition] = field(default_factory=Counter, init=False)
    _slots: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(_AT_ONCE), init=False
    )

    async def run(self) -> None:
        """Recover what is orphaned now; raises `Unavailable` if the sketch does not answer.

        A replica that died may have left thousands: the write leases that it had cached. Where one
        fails, its partition waits for the next run, which goes on after it.
        """
        partitions = self._partitions()
        while partitions:
            partitions = await self._recover_some(partitions)

    async def _recover_some(self, partitions: Sequence[Partition]) -> list[Partition]:
        """Recover as many orphans of each partition; return those that may have others."""
        share = max(_SHARE, BATCH // len(partitions))
        pages: dict[Partition, list[PendingWrite]] = {partition: [] for partition in partitions}
        with answered():
            orphans = await self._sketch.orphans(partitions, share, self._passed)
        for orphan in orphans:
            pages[orphan.partition].append(orphan)
        results = await concurrently(
            self._recover_page(partition, page, is_last=len(page) < share)
            for partition, page in pages.items()
        )
        return [partition for partition, others in zip(pages, results, strict=True) if others]

    async def _recover_page(
        self, partition: Partition, page: Sequence[PendingWrite], *, is_last: bool
    ) -> bool:
        """Recover writes; return whether there may be others, and nothing has failed with these."""
        results = await concurrently(map(self._recover, page))
        failures = [result for result in results if result is not None]
        name = "/".join(partition)
        if failures:
            _log.warning(
                "%d writes to %s are not recovered yet: %s", len(failures), name, failures[0]
            )
        if done := len(page) - len(failures):
            _log.info("%d writes to %s that nobody ended were recovered", done, name)
        if is_last:
            del self._passed[partition]
        else:
            self._passed[partition] += len(failures)
        return not is_last and not failures

    async def _recover(self, orphan: PendingWrite) -> Exception | None:
        """Recover a write; return what has prevented it, if anything has."""
        try:
            async with self._slots:
                keys = [CacheKey.parse(key) for key in orphan.keys]
                versions = await self._resolver.resolve(
                    orphan.partition.database, keys, orphan.token
                )
                # What it changed is not known: any result may be stale. Its keys are pending until
                # `end`.
                await self._guard.invalidate_results(*orphan.partition)
                known = {str(key): version for key, version in versions.items()}
                await self._sketch.end(orphan.partition, orphan.token, known)
        except (MediatorError, SketchUnavailable) as error:
            return error
        return None
