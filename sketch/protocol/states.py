"""How a partition of the sketch is, for operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sketch.protocol.port import Partition

__all__ = ["Inspectable", "PartitionState"]


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One partition at one moment; times are microseconds on the sketch's clock.

    Attributes:
        partition: The partition.
        time_us: The moment.
        generation: 32 hexadecimal digits; changes when the partition was lost.
        revision: Counts the changes of the bits.
        keys: Keys in the filter.
        bits_set: Bits of the filter that are set.
        handed_out: Keys that caches may hold copies of.
        pending: Writes that are pending.
        first_lease_us: When the first of their leases ends; None: no write is pending.
        revalidate_all_until_us: Until then everything counts as stale; 0 or past: it does not.
        uncacheable_until_us: Until then nothing may be cached; 0 or past: it may.
        purges: Keys that are to be purged, now or again later.
        purges_due: Those that are due and with nobody who sends them.
        first_purge_us: When the first of all is due; None: there is none.
        bytes: What it takes in Redis, estimated by samples; None: in memory nobody counts.
    """

    partition: Partition
    time_us: int
    generation: str
    revision: int
    keys: int
    bits_set: int
    handed_out: int
    pending: int
    first_lease_us: int | None
    revalidate_all_until_us: int
    uncacheable_until_us: int
    purges: int
    purges_due: int
    first_purge_us: int | None
    bytes: int | None


class Inspectable(Protocol):
    """A sketch that tells how it is, at a cost that does not grow with its keys."""

    kept_in: str
    """In what it is kept."""

    async def states(self, partitions: Sequence[Partition]) -> list[PartitionState]:
        """Describe partitions; raises `SketchUnavailable`."""
