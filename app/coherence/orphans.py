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

from mediator.base.concurrency import concurrently
from mediator.base.errors import MediatorError, Unavailable
from mediator.model.guard import CacheKey, WriteGuard
from mediator.routing.model import RoutingModel
from sketch.protocol.port import Partition, PendingWrite, ServerSketch, SketchUnavailable

__all__ = ["Recovery", "ResolvesWrites", "partitions_in"]

BATCH: Final = 100
"""Writes that are listed at a time, or one of each partition, if there are more of these."""
_AT_ONCE: Final = 16
"""Of these, how many are recovered at the same time."""

_log = logging.getLogger("portolan.coherence")


class ResolvesWrites(Protocol):
    async def resolve(
        self, database: str, keys: Sequence[CacheKey], token: str
    ) -> Mapping[CacheKey, int]:
        """Return the versions that stand after a write; raises `Unavailable`."""


def partitions_in(model: RoutingModel) -> list[Partition]:
    return [
        Partition(database, name)
        for database, route in model.databases.items()
        for name in route.classes
    ]


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
    _model: Callable[[], RoutingModel]
    _passed: Counter[Partition] = field(default_factory=Counter, init=False)
    _slots: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(_AT_ONCE), init=False
    )

    async def run(self) -> None:
        """Recover what is orphaned now; raises `Unavailable` if the sketch does not answer.

        A replica that died may have left thousands: the write leases that it had cached. Where one
        fails, its partition waits for the next run, which goes on after it.
        """
        partitions = partitions_in(self._model())
        while partitions:
            partitions = await self._recover_some(partitions)

    async def _recover_some(self, partitions: Sequence[Partition]) -> list[Partition]:
        """Recover as many orphans of each partition; return those that may have others."""
        share = max(1, BATCH // len(partitions))
        pages: dict[Partition, list[PendingWrite]] = {partition: [] for partition in partitions}
        for orphan in await self._orphans(partitions, share):
            pages[orphan.partition].append(orphan)
        results = await concurrently(
            self._recover_page(partition, page, is_last=len(page) < share)
            for partition, page in pages.items()
        )
        return [partition for partition, others in zip(pages, results, strict=True) if others]

    async def _orphans(self, partitions: Sequence[Partition], share: int) -> Sequence[PendingWrite]:
        try:
            return await self._sketch.orphans(partitions, share, self._passed)
        except SketchUnavailable as error:
            raise Unavailable(str(error), system="the cache sketch") from error

    async def _recover_page(
        self, partition: Partition, page: Sequence[PendingWrite], *, is_last: bool
    ) -> bool:
        """Recover writes; return whether there may be others, and nothing has failed with these."""
        recovered = await concurrently(map(self._recover, page))
        failed = recovered.count(False)
        if is_last:
            del self._passed[partition]
        else:
            self._passed[partition] += failed
        return not is_last and not failed

    async def _recover(self, orphan: PendingWrite) -> bool:
        database = orphan.partition.database
        try:
            async with self._slots:
                keys = [CacheKey.parse(key) for key in orphan.keys]
                versions = await self._resolver.resolve(database, keys, orphan.token)
                # What it changed is not known: any result may be stale. Its keys are pending until
                # `end`.
                await self._guard.invalidate_results(*orphan.partition)
                known = {str(key): version for key, version in versions.items()}
                await self._sketch.end(orphan.partition, orphan.token, known)
        except (MediatorError, SketchUnavailable) as error:
            _log.warning(
                "a write to %s is not recovered yet: %s", "/".join(orphan.partition), error
            )
            return False
        _log.info("a write to %s that nobody ended was recovered", "/".join(orphan.partition))
        return True
