"""Recovery of writes that were not ended: their replica died, or their store did not answer.

Such a write keeps its keys uncacheable, which is safe and slow. What stands of it is looked up, and
it is ended like any other, purges included (docs/protocol.md, "Recovery").
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from mediator.base.errors import MediatorError, Unavailable
from mediator.model.guard import CacheKey, WriteGuard
from mediator.routing.model import RoutingModel
from sketch.protocol.port import Partition, PendingWrite, ServerSketch, SketchUnavailable

__all__ = ["Recovery", "ResolvesWrites", "partitions_in"]

BATCH: Final = 100
"""Writes that are recovered at a time."""

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
    """Recovers orphaned writes of all replicas."""

    _sketch: ServerSketch
    _guard: WriteGuard
    _resolver: ResolvesWrites
    _model: Callable[[], RoutingModel]

    async def run(self) -> None:
        """Recover what is orphaned now; raises `Unavailable` if the sketch does not answer.

        A replica that died may have left thousands: the write leases that it had cached.
        """
        while await self._recover_all(await self._orphans()):
            pass

    async def _orphans(self) -> Sequence[PendingWrite]:
        try:
            return await self._sketch.orphans(partitions_in(self._model()), BATCH)
        except SketchUnavailable as error:
            raise Unavailable(str(error), system="the cache sketch") from error

    async def _recover_all(self, orphans: Sequence[PendingWrite]) -> bool:
        """Recover writes; return whether there may be others, and nothing has failed with these."""
        recovered = [await self._recover(orphan) for orphan in orphans]
        return len(orphans) == BATCH and all(recovered)

    async def _recover(self, orphan: PendingWrite) -> bool:
        database = orphan.partition.database
        try:
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
