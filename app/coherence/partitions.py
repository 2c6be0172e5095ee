"""The partitions that replicas look after: of all classes, and of those that were dropped.

A write may be pending when its class is dropped, and purges may be owed. So the partition of a
class that is gone is looked after until no copy of it can be fresh; then it is removed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from app.coherence.write_guard import answered
from mediator.base.clock import Clock
from mediator.routing.model import RoutingModel
from sketch.protocol.port import Partition, ServerSketch

__all__ = ["LISTED_EVERY_S", "Partitions"]

LISTED_EVERY_S: Final = 10.0


@dataclass(eq=False)
class Partitions:
    """Knows which classes there are, and which there were.

    Attributes:
        _read_catalogue: Has the model be that of the catalogue; raises `Unavailable`.
        _lease_s: Seconds of a write lease, within which the other replicas read a new schema.
        _missing: Partitions without a class, and since when by the monotonic clock.
    """

    _sketch: ServerSketch
    _model: Callable[[], RoutingModel]
    _read_catalogue: Callable[[], Awaitable[object]]
    _clock: Clock
    _lease_s: float
    _missing: dict[Partition, float] = field(default_factory=dict, init=False)

    def present(self) -> list[Partition]:
        """Return the partitions of all classes."""
        return [
            Partition(database, name)
            for database, route in self._model().databases.items()
            for name in route.classes
        ]

    def all(self) -> list[Partition]:
        """Return the partitions of all classes, and of dropped ones that are not removed yet."""
        present = self.present()
        return [*present, *self._dropped(present)] if self._missing else present

    async def look(self) -> None:
        """Find the partitions of dropped classes, and remove those that are needed no more.

        Raises:
            Unavailable: The sketch or the catalogue does not answer; what is left is done the next
                time.
        """
        with answered():
            await self._find_missing()
            for partition in self._dropped(self.present()):
                await self._sketch.remove(partition)

    async def _find_missing(self) -> None:
        # Until all is known anew, nothing counts as dropped: a replica that is late would end the
        # orphans of a new class without a fence.
        before, self._missing = self._missing, {}
        listed = set(await self._sketch.partitions(self.present()))
        if listed <= {*self.present()}:
            return
        await self._read_catalogue()
        now = self._clock.monotonic()
        self._missing = {each: before.get(each, now) for each in sorted(listed - {*self.present()})}

    def _dropped(self, present: list[Partition]) -> list[Partition]:
        """Return those that are missing for long, unless a class has their name again."""
        since, there = self._clock.monotonic() - self._lease_s, set(present)
        return [each for each, at in self._missing.items() if at <= since and each not in there]
