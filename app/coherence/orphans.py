"""Recovery of orphaned writes: their replica died, or their store did not answer.

An orphan keeps its keys uncacheable, which is safe but slow. Recovery looks up the current
versions, and ends the write like any other, including purges (docs/protocol.md, "Recovery"). A
system that does not answer does not delay the orphans of others: each partition has its share, and
within a partition all are tried before any is retried.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from app.coherence.write_guard import translating_sketch_errors
from mediator.base.concurrency import concurrently
from mediator.base.errors import MediatorError
from mediator.model.guard import CacheKey, WriteGuard
from sketch.protocol.port import Partition, PendingWrite, ServerSketch, SketchUnavailable

__all__ = ["Recovery", "ResolvesWrites"]

BATCH: Final = 100
"""Writes that are listed at a time, over all partitions."""
_MIN_SHARE: Final = 10
"""The smallest limit of the writes of one partition that are listed at a time."""
_CONCURRENCY: Final = 16
"""Writes that are recovered at the same time."""

_log = logging.getLogger("portolan.coherence")


class ResolvesWrites(Protocol):
    async def resolve(
        self, database: str, keys: Sequence[CacheKey], token: str
    ) -> Mapping[CacheKey, int]:
        """Return the current versions after a write is resolved; raise `Unavailable`."""


@dataclass(eq=False)
class Recovery:
    """Recovers orphaned writes of all replicas.

    Attributes:
        _skipped: By partition, how many orphans at the front of its list have failed, and are
            skipped until all others were tried.
    """

    _sketch: ServerSketch
    _guard: WriteGuard
    _resolver: ResolvesWrites
    _partitions: Callable[[], Sequence[Partition]]
    _skipped: Counter[Partition] = field(default_factory=Counter, init=False)
    _slots: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(_CONCURRENCY), init=False
    )

    async def run(self) -> None:
        """Recover the orphans; raise `Unavailable` if the sketch does not answer.

        A dead replica may have left thousands, its cached write leases. If one fails, its partition
        waits for the next run, which continues after it.
        """
        partitions = self._partitions()
        while partitions:
            partitions = await self._recover_pages(partitions)

    async def _recover_pages(self, partitions: Sequence[Partition]) -> list[Partition]:
        """Recover a page of orphans of each partition; return partitions that may have more."""
        share = max(_MIN_SHARE, BATCH // len(partitions))
        pages: dict[Partition, list[PendingWrite]] = {partition: [] for partition in partitions}
        with translating_sketch_errors():
            orphans = await self._sketch.orphans(partitions, share, self._skipped)
        for orphan in orphans:
            pages[orphan.partition].append(orphan)
        results = await concurrently(
            self._recover_page(partition, page, is_last=len(page) < share)
            for partition, page in pages.items()
        )
        return [partition for partition, has_more in zip(pages, results, strict=True) if has_more]

    async def _recover_page(
        self, partition: Partition, page: Sequence[PendingWrite], *, is_last: bool
    ) -> bool:
        """Recover a page of writes; return whether all succeeded and there may be more."""
        results = await concurrently(map(self._recover, page))
        failures = [result for result in results if result is not None]
        name = "/".join(partition)
        if failures:
            _log.warning(
                "%d writes to %s are not recovered yet: %s", len(failures), name, failures[0]
            )
        if recovered := len(page) - len(failures):
            _log.info("%d orphaned writes to %s were recovered", recovered, name)
        if is_last:
            del self._skipped[partition]
        else:
            self._skipped[partition] += len(failures)
        return not is_last and not failures

    async def _recover(self, orphan: PendingWrite) -> Exception | None:
        """Recover a write; return the error if it failed."""
        try:
            async with self._slots:
                keys = [CacheKey.parse(key) for key in orphan.keys]
                versions = await self._resolver.resolve(
                    orphan.partition.database, keys, orphan.token
                )
                # Its effects are unknown: any result may be stale. Its keys are pending until
                # `end`.
                await self._guard.invalidate_results(*orphan.partition)
                key_versions = {str(key): version for key, version in versions.items()}
                await self._sketch.end(orphan.partition, orphan.token, key_versions)
        except (MediatorError, SketchUnavailable) as error:
            return error
        return None
