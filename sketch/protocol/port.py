"""The port of the server's sketch: its calls, and what they return (docs/protocol.md).

The sketch is kept in *partitions*, one for each class of a database. A key names one cache group of
one object, ``class/id#group``; all keys of one call belong to the same partition. Times are
microseconds since 1970 on the sketch's own clock, which all replicas share.

For each key the sketch knows two times. `handed_out` is the latest expiry of any copy in a cache.
`stale_until` is `handed_out` at the time of the last write. The key is in the filter until
`stale_until`, and while a write to it is pending.

The result of a query also has a key: ``class//`` and its canonical query (`sketch.protocol.keys`).
It is never pending. While a copy of it may be fresh that no write has outdated, the query is
*registered*: writers look for it among the results that they may have changed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple, Protocol, TypeAlias

from sketch.filter.shape import FilterShape

__all__ = [
    "BeginResult",
    "CacheGrant",
    "EndResult",
    "FilterSnapshot",
    "OnContention",
    "Partition",
    "PendingWrite",
    "Purge",
    "PurgeQueue",
    "QueryRegistrations",
    "ResultChanges",
    "ServerSketch",
    "SketchLimits",
    "SketchPartitionState",
    "SketchUnavailable",
]


class SketchUnavailable(Exception):
    """The sketch did not answer: writes are refused, and nothing may be cached."""


class Partition(NamedTuple):
    """One class of a database."""

    database: str
    class_name: str


@dataclass(frozen=True, slots=True)
class SketchLimits:
    """The limits of a sketch's promises and size.

    Attributes:
        max_ttl_s: No copy is ever granted a longer TTL (seconds).
        margin_s: M of docs/protocol.md: the maximum time between `report_read` and the receipt
            by the last cache, with one second of rounding for each layer.
        layers: Shared caches in a row that do not send a copy's age; their lifetimes add up.
        lease_s: How long a write may be pending before it counts as orphaned; longer than any call
            of a store may take.
        keys: Keys of a partition that caches may hold copies of at the same time; beyond, nothing
            new becomes cacheable.
        queries: Queries of a partition that are registered at the same time; beyond, no further
            result becomes cacheable.
        expired_at_once: At least this many expired keys can leave the filter during one call; twice
            as many as the call names, if that is more, so that expired keys do not pile up.
        purge_repeat_s: F of docs/protocol.md, the longest time a cache may take to fill: a purge is
            repeated after it; None: nothing is purged, and no purges are stored.
        purge_lease_s: The time after which a taken but unacknowledged purge is handed out again.
        earlier_lifetime_s: How long copies that were handed out under earlier limits may be fresh;
            a sketch that was lost does not know those limits (seconds).
    """

    max_ttl_s: float = 600.0
    margin_s: float = 5.0
    layers: int = 1
    lease_s: float = 30.0
    keys: int = 1_000_000
    queries: int = 10_000
    expired_at_once: int = 100
    purge_repeat_s: float | None = None
    purge_lease_s: float = 10.0
    earlier_lifetime_s: float = 0.0


@dataclass(frozen=True, slots=True)
class BeginResult:
    """The result of `begin`.

    Attributes:
        held: The keys of which caches may hold copies: they must be purged.
        sequence: The registration sequence (`QueryRegistrations`).
        lease_cacheable: Whether the write may be acknowledged before it is ended, and later writes
            under its token: no cache can hold its keys, and no result of a query becomes cacheable
            until it has ended. Never where `begin` and `end` take no round trip.
    """

    held: tuple[str, ...] = ()
    sequence: int = 0
    lease_cacheable: bool = False


@dataclass(frozen=True, slots=True)
class CacheGrant:
    """The caching that is granted to a response before it is read.

    Attributes:
        now_us: The sketch's time.
        ttl_us: TTL of the response from `now_us` on; 0: it must not be cached.
        versions: The version of each key, in order; None if it is not known for certain, or if a
            write is pending.
        fill: Allows `fill` to set the unknown versions, once they have been read; empty if no key
            takes one.
        adopted: Whether the schema that a registration named is the adopted one.
    """

    now_us: int
    ttl_us: int = 0
    versions: tuple[int | None, ...] = ()
    fill: str = ""
    adopted: bool = True


@dataclass(frozen=True, slots=True)
class PendingWrite:
    """A write that was not ended before its lease."""

    partition: Partition
    token: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QueryRegistrations:
    """The registered queries of a partition.

    Attributes:
        sequence: Changes with each registration, and when the sketch is lost.
        count: Their number.
        numbers: The keys that the caller lacks, with the numbers of their registrations.
        complete: Whether `numbers` has all registered queries.
    """

    sequence: int
    count: int
    numbers: Mapping[str, int]
    complete: bool


@dataclass(frozen=True, slots=True)
class ResultChanges:
    """A writer's report on query results when it ends a write.

    Attributes:
        queries: Keys of the results that it may have changed.
        sequence: The registration sequence at which it looked for them.
        exclusive: It looked at the objects as if no other write intervened.
        pauses_registration: Registration pauses for a moment, so that the next look is up to date.
    """

    queries: Sequence[str]
    sequence: int
    exclusive: bool = False
    pauses_registration: bool = False


class EndResult(Enum):
    """The outcome of the end of a write.

    DONE: it has ended.
    CONTENDED: it has ended; a read of one of its keys was refused while it was pending.
    BEHIND: queries were registered that the writer does not know; the write is still pending.
    CONCURRENT: another write of the same keys was pending; the write is still pending.
    """

    DONE = auto()
    CONTENDED = auto()
    BEHIND = auto()
    CONCURRENT = auto()


@dataclass(frozen=True, slots=True)
class FilterSnapshot:
    """The plain filter of a partition, or of several (their union).

    Attributes:
        bits: The bit array, most significant bit first; `shape.bits // 8` bytes.
        time_us: When the bits were current: read before them; of a union, the earliest.
        generation: 32 hexadecimal digits; changes when the sketch was lost.
        revision: Counts changes of the bits; of a union, a digest of its partitions' revisions.
        revalidate_all: The sketch was lost recently: all bits are set.
    """

    shape: FilterShape
    bits: bytes
    time_us: int
    generation: str
    revision: int
    revalidate_all: bool = False


OnContention: TypeAlias = Callable[[Partition, str], Awaitable[object]]
"""Called with the key of a refused read; empty: the result of any query of the class."""


@dataclass(frozen=True, slots=True)
class Purge:
    """A key that caches must drop.

    Attributes:
        ticket: Distinguishes this purge from a later one of the same key; it stays the same each
            time that the purge is handed out.
    """

    partition: Partition
    key: str
    ticket: int


class PurgeQueue(Protocol):
    """Purges to be sent, stored by the sketch: `end` adds the keys that `begin` returned as held.

    A purge is due at once, and repeated `purge_repeat_s` later, because a fill that was under way
    brings the old version back. It ends with the last copy of its key. Every call raises
    `SketchUnavailable` and nothing else.
    """

    async def take_purges(self, partitions: Sequence[Partition], limit: int) -> list[Purge]:
        """Take due purges; after `purge_lease_s` unacknowledged ones are handed out again."""

    async def acknowledge_purges(self, purges: Sequence[Purge]) -> None:
        """Remove purges that caches have confirmed; later ones of the same keys stay."""


@dataclass(frozen=True, slots=True)
class SketchPartitionState:
    """One partition at one moment; times are microseconds on the sketch's clock.

    Attributes:
        generation: 32 hexadecimal digits; changes when the partition was lost.
        handed_out: Keys that caches may hold copies of.
        first_lease_us: When the first lease of a write ends; None: no write is pending.
        revalidate_all_until_us: Until then everything counts as stale; 0 or past: it does not.
        uncacheable_until_us: Until then nothing may be cached; 0 or past: it may.
        purges: Keys that must be purged, now or later.
        purges_due: Purges that are due and that no replica is sending.
        first_purge_us: When the first purge is due; None: there are no purges.
        bytes: Its memory in Redis, estimated by samples; None for a sketch in memory.
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


class ServerSketch(PurgeQueue, Protocol):
    """The sketch at the server. Every call raises `SketchUnavailable` and nothing else."""

    limits: SketchLimits
    shape: FilterShape
    kept_in: str  # redis, or memory

    async def create(self, partition: Partition) -> None:
        """Create a partition that never existed: no cache holds any of its keys.

        Any other missing partition counts as lost. An existing one stays unchanged.
        """

    async def invalidate(self, partition: Partition) -> None:
        """Start a new generation of a partition, as if it had been lost: all copies are outdated.

        All of its keys are revalidated until no copy can be fresh.
        """

    async def layout(self, partition: Partition) -> str:
        """Return the adopted layout, the meaning of the partition's keys; empty: none."""

    async def adopt(
        self,
        partition: Partition,
        before: str,
        after: str,
        *,
        invalidate: bool = False,
        schema: str = "",
    ) -> bool:
        """Replace the layout atomically; False: the current layout is not `before`.

        Args:
            partition: The partition.
            before: The expected layout. If it is empty, copies may rest on any: a new generation
                starts if some may be fresh.
            after: The new layout.
            invalidate: Start a new generation, as `invalidate` does: the layout does not cover
                earlier copies.
            schema: The schema that registrations of queries must name; empty: none is registered.
        """

    async def begin(self, partition: Partition, keys: Sequence[str], token: str) -> BeginResult:
        """Announce a write of keys atomically; a repeated token counts once."""

    async def end(
        self,
        partition: Partition,
        token: str,
        versions: Mapping[str, int],
        changes: ResultChanges | None = None,
    ) -> EndResult:
        """End a pending write and set the versions it made, by maximum; ignores unknown tokens.

        Results that the write may have changed enter the filter first, whatever the outcome; with
        `changes` the write ends only if they are up to date.
        """

    async def report_read(
        self, partition: Partition, keys: Sequence[str], ttl_s: float
    ) -> CacheGrant:
        """Report that a response showing these keys is about to be read and may be cached.

        All or nothing: if a write to any of the keys is pending, nothing is recorded.
        """

    async def report_query(
        self, partition: Partition, key: str, ttl_s: float, schema: str = ""
    ) -> CacheGrant:
        """Register atomically a query whose result is about to be read and may be cached.

        Under a schema other than the adopted one nothing is registered or recorded.
        """

    async def registrations(self, partition: Partition, since: int) -> QueryRegistrations:
        """Return the registrations after a sequence; all if it is 0, or of another generation."""

    async def invalidate_results(self, partition: Partition, queries: Sequence[str]) -> None:
        """Report that query results may have changed; they are no longer registered."""

    async def fill(self, partition: Partition, fill: str, versions: Mapping[str, int]) -> None:
        """Set the versions that were read after `report_read`; ignored if a write intervened."""

    async def snapshot(self, partitions: Sequence[Partition]) -> FilterSnapshot:
        """Return the union of the filters of partitions."""

    async def orphans(
        self,
        partitions: Sequence[Partition],
        limit: int,
        offsets: Mapping[Partition, int] | None = None,
    ) -> list[PendingWrite]:
        """List writes whose leases have ended; the caller fences them, purges, and ends them.

        Args:
            partitions: The partitions whose writes are listed, the earliest of each first.
            limit: The maximum of writes for each partition.
            offsets: How many of the first writes of a partition to skip; 0 if it is missing.
        """

    async def listen(self, on_contention: OnContention) -> None:
        """Notify of reads that were refused because of cached write leases, until cancelled.

        All replicas are notified of the first refused read of each pending write, but a message may
        be lost. It raises nothing, and ends at once where no lease is cached.
        """

    async def partitions(self, present: Collection[Partition]) -> Collection[Partition]:
        """List the partitions of present classes; return all that are listed and not removed."""

    async def remove(self, partition: Partition) -> bool:
        """Remove a partition whose class is gone; if it is needed later, it starts as a lost one.

        Returns:
            Whether it is removed: False while a write to it is pending, or a copy of it may be
            fresh. Meanwhile `orphans` and `take_purges` maintain it; they do not create a partition
            that was removed.
        """

    async def states(self, partitions: Sequence[Partition]) -> list[SketchPartitionState]:
        """Describe partitions, at a cost that does not grow with their keys."""

    async def close(self) -> None:
        """Release every connection."""
