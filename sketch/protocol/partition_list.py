"""The port of the list of a sketch's partitions, by which those of dropped classes are found."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from sketch.protocol.port import Partition

__all__ = ["PartitionList"]


class PartitionList(Protocol):
    """The partitions that a sketch keeps, until those of dropped classes are removed.

    Every call raises `SketchUnavailable` and nothing else.
    """

    async def partitions(self, present: Collection[Partition]) -> Collection[Partition]:
        """Return the partitions that are listed, and list those of classes that are present.

        A partition is listed until it is removed.
        """

    async def remove(self, partition: Partition) -> bool:
        """Remove a partition whose class is gone; whoever needs it again begins it as a lost one.

        Returns:
            Whether there is nothing of it: False while a write to it is pending, or a copy of it
            may be fresh. It is looked after meanwhile (`orphans`, `take_purges`), which does not
            begin one that was removed.
        """
