"""The partitions that replicas maintain: of all classes, and of dropped ones.

Writes and purges can be pending when their class is dropped. So the partition of a dropped class is
maintained until no copy of it can be fresh; then it is removed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from app.coherence.write_guard import translating_sketch_errors
from mediator.base.clock import Clock
from mediator.routing.model import RoutingModel
from sketch.protocol.port import Partition, ServerSketch

__all__ = ["LIST_INTERVAL_S", "Partitions"]

LIST_INTERVAL_S: Final = 10.0


@dataclass(eq=False)
class Partitions:
    """The partitions of existing classes, and of dropped ones.

    Attributes:
        _read_catalogue: Updates the model from the catalogue; raises `Unavailable`.
        _lease_s: Seconds of a write lease, within which the other replicas read a new schema.
        _missing: Partitions without a class, and since when by the monotonic clock.
    """

    _sketch: ServerSketch
    _model: Callable[[], RoutingModel]
    _read_catalogue: Callable[[], Awaitable[object]]
    _clock: Clock
    _lease_s: float
    _missing: dict[Partition, float] = field(default_factory=dict, init=False)

    def current(self) -> list[Partition]:
        """Return the partitions of all classes."""
        return [
            Partition(database, name)
            for database, route in self._model().databases.items()
            for name in route.classes
        ]

    def all(self) -> list[Partition]:
        """Return the partitions of all classes, and of dropped ones that are not yet removed."""
        partitions = self.current()
        return [*partitions, *self._dropped(partitions)] if self._missing else partitions

    async def remove_dropped(self) -> None:
        """Find the partitions of dropped classes, and remove those that are no longer needed.

        Raises:
            Unavailable: The sketch or the catalogue does not answer; the next call continues.
        """
        with translating_sketch_errors():
            await self._find_missing()
            for partition in self._dropped(self.current()):
                await self._sketch.remove(partition)

    async def _find_missing(self) -> None:
        # Until all is read again, nothing counts as dropped: otherwise a late replica would end the
        # orphans of a new class without a fence.
        previous, self._missing = self._missing, {}
        listed = set(await self._sketch.partitions(self.current()))
        if listed <= {*self.current()}:
            return
        await self._read_catalogue()
        now = self._clock.monotonic()
        self._missing = {
            partition: previous.get(partition, now)
            for partition in sorted(listed - {*self.current()})
        }

    def _dropped(self, partitions: list[Partition]) -> list[Partition]:
        """Return partitions without a class for a lease or longer."""
        cutoff, existing = self._clock.monotonic() - self._lease_s, set(partitions)
        return [
            partition
            for partition, missing_since in self._missing.items()
            if missing_since <= cutoff and partition not in existing
        ]
