"""Cacheable answers: the sketch grants a TTL before the read (docs/protocol.md, "Reading")."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from app.coherence.cached_leases import CachedLeases
from app.coherence.grants import GrantCache, UncoveredQueries
from app.coherence.layouts import ClassLayouts, schema_of
from app.http.caching import NO_STORE, cache_headers
from app.http.message import Headers
from app.http.paths import parse_pairs
from app.http.preconditions import Preconditions, format_tag
from mediator.base.clock import Clock
from mediator.model.filters import Filter
from mediator.model.guard import CacheKey
from mediator.model.operations import Outcome
from mediator.routing.freshness import ANY, STRONG, WHOLE, ReadPreference
from mediator.routing.model import ClassRoute
from sketch.protocol.bounds import granted_us
from sketch.protocol.keys import MAX_QUERY_BYTES, canonical_query, key_of_query, tag_of
from sketch.protocol.port import (
    CacheGrant,
    FilterSnapshot,
    Partition,
    ServerSketch,
    SketchUnavailable,
)
from sketch.ttl import TtlEstimator
from sketch.ttl.port import TtlGranted

__all__ = ["CachedReads", "ReadGrant"]

_CACHEABLE_PREFERENCES: Final = (ANY, STRONG, WHOLE)
_NO_GRANT: Final = CacheGrant(0)
_log = logging.getLogger("portolan.coherence")


@dataclass(frozen=True, slots=True)
class ReadGrant:
    """The sketch's grant for an answer, from before the read.

    Attributes:
        keys: The keys of the answer, by cache group.
        requested_s: When the grant was requested, by the monotonic clock.
        is_dated: Whether the answer has a date instead of a TTL in the sketch.
    """

    partition: Partition
    keys: Mapping[str, str]
    visibility: Literal["public", "private"]
    grant: CacheGrant
    requested_s: float
    is_dated: bool = False

    @property
    def versions(self) -> Mapping[str, int] | None:
        """The versions of all groups, if the sketch knows them with certainty."""
        versions: dict[str, int] = {}
        for group, version in zip(self.keys, self.grant.versions, strict=False):
            if version is None:
                return None
            versions[group] = version
        return versions if len(versions) == len(self.keys) else None


@dataclass(eq=False)
class CachedReads:
    """Makes answers cacheable.

    Attributes:
        _layouts: Announces layouts of keys to the sketch.
        _leases: Released before their keys are read.
        _answer_s: Seconds from the request of a grant in which an answer must be sent: its share
            of the margin M.
        _sketch_time_us: Returns a time that the sketch's clock has reached by now, if known.
    """

    _sketch: ServerSketch
    _layouts: ClassLayouts
    _leases: CachedLeases
    _estimator: TtlEstimator
    _answer_s: float
    _clock: Clock
    _on_granted: Callable[[TtlGranted], None]
    _sketch_time_us: Callable[[], int | None]
    _fills: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    _grants: GrantCache = field(default_factory=GrantCache, init=False)
    _uncovered: UncoveredQueries = field(default_factory=UncoveredQueries, init=False)

    async def snapshot(self, partitions: Sequence[Partition]) -> FilterSnapshot:
        """Return the filter of partitions, after adopting their layouts.

        Clients decide by it without asking a replica, and caches may have copies of former objects
        of a class that was dropped and created again.

        Raises:
            SketchUnavailable: The sketch does not answer.
        """
        await self._layouts.adopt_all(partitions)
        return await self._sketch.snapshot(partitions)

    async def grant_object(
        self,
        partition: Partition,
        route: ClassRoute,
        id_: str,
        groups: Sequence[str],
        preference: ReadPreference,
        *,
        conditional: bool,
    ) -> ReadGrant | None:
        """Grant a TTL for the answer with an object; None: it must not be cached.

        Call it before the systems are read, so that a write that begins in between sees that a
        cache may have a copy. The grant is valid for an answer of the systems, not of the view. For
        a `conditional` request, the sketch may know that the client's copy is current.
        """
        if not _is_cacheable(route, preference):
            return None
        keys = _keys(partition, id_, groups)
        names = tuple(keys.values())

        async def report(ttl_s: float) -> CacheGrant:
            grant_key = (*partition, id_, tuple(groups))
            requested_s = self._clock.monotonic()
            if not conditional:
                ttl_us = granted_us(self._sketch.limits, ttl_s)
                reused = self._grants.reuse(grant_key, route, ttl_us, requested_s)
                if reused is not None:
                    return reused
            # A cached lease is a pending write, for which the sketch would grant no TTL.
            await self._leases.release(partition, names)
            grant = await self._sketch.report_read(partition, names, ttl_s)
            self._grants.put(grant_key, route, grant, requested_s)
            return grant

        return await self._grant(partition, route, keys, report)

    def grant_dated(
        self,
        partition: Partition,
        route: ClassRoute,
        id_: str,
        groups: Sequence[str],
        preference: ReadPreference,
        max_age_s: int,
    ) -> ReadGrant | None:
        """Date an answer before the read; None: shared caches must not keep it.

        The sketch is not called, and filters do not show when the answer becomes outdated: readers
        use its date. It was current then or later, as the systems are read after this call.
        """
        date_us, now_s = self._sketch_time_us(), self._clock.now()
        if date_us is None or route.schema.cache.visibility != "public":
            return None
        if not _is_cacheable(route, preference):
            return None
        keys = _keys(partition, id_, groups)
        self._estimator.missed(partition, tuple(keys.values()), now_s, 0.0)
        grant = CacheGrant(date_us, max_age_s * 1_000_000)
        return ReadGrant(partition, keys, "public", grant, self._clock.monotonic(), is_dated=True)

    async def _grant(
        self,
        partition: Partition,
        route: ClassRoute,
        keys: Mapping[str, str],
        report: Callable[[float], Awaitable[CacheGrant]],
    ) -> ReadGrant:
        cache = route.schema.cache
        assert cache.visibility != "none"
        names, now_s = tuple(keys.values()), self._clock.now()
        ttl_s = min(cache.max_ttl_s, self._estimator.ttl_s(partition, names, now_s))
        requested_s = self._clock.monotonic()
        try:
            # Writers do not see keys under a layout that is not current.
            is_current = await self._layouts.adopt(partition) is route
            grant = await report(ttl_s) if is_current else _NO_GRANT
        except SketchUnavailable as error:
            _log.warning("nothing may be cached: %s", error)
            grant = _NO_GRANT
        if not grant.adopted:
            self._layouts.forget(partition)
        granted_s = grant.ttl_us / 1_000_000
        self._estimator.missed(partition, names, now_s, granted_s)
        self._on_granted(TtlGranted(partition, granted_s))
        return ReadGrant(partition, keys, cache.visibility, grant, requested_s)

    async def grant_query(
        self,
        partition: Partition,
        route: ClassRoute,
        query: bytes,
        filter_: Filter | None,
        preference: ReadPreference,
    ) -> ReadGrant | None:
        """Register a query, and grant a TTL for its answer; None: it must not be cached."""
        if not _is_cacheable(route, preference):
            return None
        canonical = canonical_query(parse_pairs(query))
        if canonical.encode() != query or len(query) > MAX_QUERY_BYTES:
            return None
        key, schema = key_of_query(partition.class_name, canonical), schema_of(route)
        now_s, max_ttl_s = self._clock.monotonic(), route.schema.cache.max_ttl_s
        if not self._uncovered.admit(partition, key, filter_, now_s, max_ttl_s):
            return None

        async def report(ttl_s: float) -> CacheGrant:
            await self._leases.release_class(partition)
            return await self._sketch.report_query(partition, key, ttl_s, schema)

        return await self._grant(partition, route, {"": key}, report)

    def current_tag(
        self, read_grant: ReadGrant, schema_version: int, preconditions: Preconditions
    ) -> str | None:
        """Return the tag for a 304, if the sketch knows that the client's copy is current.

        Raises:
            PreconditionFailed: If-Match does not match.
        """
        # The sketch also knows versions of deletions, which have no tags; `*` would match them.
        if preconditions.if_none_match is None or preconditions.if_none_match.any:
            return None
        if (versions := read_grant.versions) is None:
            return None
        tag = format_tag(schema_version, tuple(read_grant.keys), versions)
        return tag if preconditions.not_modified(tag) else None

    def cache_headers(self, read_grant: ReadGrant, *, hit: bool = False) -> Headers:
        """Return the cache headers of an answer about to be sent; `no-store` if it is too late."""
        grant = read_grant.grant
        # After its share of the margin M, a copy could outlive its expiry in the sketch.
        if grant.ttl_us <= 0 or self._clock.monotonic() - read_grant.requested_s > self._answer_s:
            return [NO_STORE]
        tags = [tag_of(read_grant.partition.database, key) for key in read_grant.keys.values()]
        end_us = grant.now_us + grant.ttl_us
        date_us = grant.now_us if read_grant.is_dated else None
        visibility, ttl_us = read_grant.visibility, grant.ttl_us
        return cache_headers(visibility, ttl_us, end_us, tags, hit=hit, date_us=date_us)

    def record_versions(self, read_grant: ReadGrant, outcome: Outcome) -> None:
        """Record the read versions in the sketch, so that it can answer 304 next time."""
        if not read_grant.grant.fill or outcome.partial or outcome.freshness is not None:
            return
        versions = {
            key: version
            for group, key in read_grant.keys.items()
            if (version := outcome.versions.get(group)) is not None
        }
        task = asyncio.create_task(self._fill(read_grant, versions))
        # The event loop keeps only a weak reference to a task.
        self._fills.add(task)
        task.add_done_callback(self._fills.discard)

    async def _fill(self, read_grant: ReadGrant, versions: Mapping[str, int]) -> None:
        try:
            await self._sketch.fill(read_grant.partition, read_grant.grant.fill, versions)
        except SketchUnavailable as error:
            _log.debug("versions were not filled in: %s", error)


def _is_cacheable(route: ClassRoute, preference: ReadPreference) -> bool:
    """Whether answers of a class can be cached.

    The sketch does not see the expiry of an object (`ttl_s`), which is not a write.
    """
    schema = route.schema
    return (
        schema.cache.visibility != "none"
        and preference in _CACHEABLE_PREFERENCES
        and schema.ttl_s is None
    )


def _keys(partition: Partition, id_: str, groups: Sequence[str]) -> Mapping[str, str]:
    return {group: str(CacheKey(partition.class_name, id_, group)) for group in groups}
