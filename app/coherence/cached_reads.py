"""Cacheable answers: before one is read, the sketch grants a TTL (docs/protocol.md, "Reading")."""

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

_CACHEABLE: Final = (ANY, STRONG, WHOLE)
_NONE: Final = CacheGrant(0)
_log = logging.getLogger("portolan.coherence")


@dataclass(frozen=True, slots=True)
class ReadGrant:
    """What the sketch granted an answer before it was read.

    Attributes:
        keys: What the answer shows, by cache group.
        requested_s: When it was requested, by the monotonic clock.
        is_dated: Whether the sketch knows of no TTL of the answer, which has a date instead.
    """

    partition: Partition
    keys: Mapping[str, str]
    visibility: Literal["public", "private"]
    grant: CacheGrant
    requested_s: float
    is_dated: bool = False

    @property
    def versions(self) -> Mapping[str, int] | None:
        """The versions of all groups, if the sketch knows them for certain."""
        known: dict[str, int] = {}
        for group, version in zip(self.keys, self.grant.versions, strict=False):
            if version is None:
                return None
            known[group] = version
        return known if len(known) == len(self.keys) else None


@dataclass(eq=False)
class CachedReads:
    """Makes answers cacheable.

    Attributes:
        _layouts: Has the sketch know what keys stand for.
        _leases: Released before their keys are read.
        _answer_s: Within how many seconds an answer must leave after its grant was requested: its
            part of the margin M.
        _sketch_time_us: Returns a time that the sketch's clock has shown by now, if it is known.
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
        """Return the filter of partitions; clients judge by it also what no replica is asked for.

        So the layouts come first: a class that was dropped, and created again, may have copies of
        its former objects in caches.

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
        """Grant an object's answer a TTL; None: it must not be kept.

        It must be granted before the systems are read: a write that begins in between sees that a
        copy may be in a cache. What is granted holds for an answer of the systems, not of the
        view. Where the request is `conditional`, the sketch may know that its copy is current.
        """
        if not _may_be_kept(route, preference):
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
            # A lease that is cached here is a pending write: the sketch would grant no TTL.
            await self._leases.release(partition, names)
            grant = await self._sketch.report_read(partition, names, ttl_s)
            self._grants.put(grant_key, route, grant, requested_s)
            return grant

        return await self._granted(partition, route, keys, report)

    def grant_dated(
        self,
        partition: Partition,
        route: ClassRoute,
        id_: str,
        groups: Sequence[str],
        preference: ReadPreference,
        max_age_s: int,
    ) -> ReadGrant | None:
        """Date an answer that is about to be read; None: it must not be kept by shared caches.

        The sketch is not called, and filters do not name what becomes outdated: readers of the
        answer look at its date. It was true then or later, as the systems are read after this.
        """
        date_us, now_s = self._sketch_time_us(), self._clock.now()
        if date_us is None or route.schema.cache.visibility != "public":
            return None
        if not _may_be_kept(route, preference):
            return None
        keys = _keys(partition, id_, groups)
        self._estimator.missed(partition, tuple(keys.values()), now_s, 0.0)
        grant = CacheGrant(date_us, max_age_s * 1_000_000)
        return ReadGrant(partition, keys, "public", grant, self._clock.monotonic(), is_dated=True)

    async def _granted(
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
            # Keys under another layout than the one in force say nothing to writers.
            present = await self._layouts.adopt(partition) is route
            grant = await report(ttl_s) if present else _NONE
        except SketchUnavailable as error:
            _log.warning("nothing may be cached: %s", error)
            grant = _NONE
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
        """Grant a query's answer a TTL, which registers it; None: it must not be kept."""
        if not _may_be_kept(route, preference):
            return None
        canonical = canonical_query(parse_pairs(query))
        if canonical.encode() != query or len(query) > MAX_QUERY_BYTES:
            return None
        key, schema = key_of_query(partition.class_name, canonical), schema_of(route)
        now_s, longest_s = self._clock.monotonic(), route.schema.cache.max_ttl_s
        if not self._uncovered.admit(partition, key, filter_, now_s, longest_s):
            return None

        async def report(ttl_s: float) -> CacheGrant:
            await self._leases.release_class(partition)
            return await self._sketch.report_query(partition, key, ttl_s, schema)

        return await self._granted(partition, route, {"": key}, report)

    def current_tag(
        self, read_grant: ReadGrant, schema_version: int, preconditions: Preconditions
    ) -> str | None:
        """Return the tag to answer 304 with, if the sketch knows that the client has the object.

        Raises:
            PreconditionFailed: If-Match does not match.
        """
        # The sketch knows versions of deletions, too, but these have no tags; `*` would match them.
        if preconditions.if_none_match is None or preconditions.if_none_match.any:
            return None
        if (versions := read_grant.versions) is None:
            return None
        tag = format_tag(schema_version, tuple(read_grant.keys), versions)
        return tag if preconditions.not_modified(tag) else None

    def cache_headers(self, read_grant: ReadGrant, *, hit: bool = False) -> Headers:
        """Return who may keep an answer that is about to leave; `no-store` if it is too late."""
        grant = read_grant.grant
        # Later than its part of the margin M, a copy could outlive the expiry that the sketch has.
        if grant.ttl_us <= 0 or self._clock.monotonic() - read_grant.requested_s > self._answer_s:
            return [NO_STORE]
        tags = [tag_of(read_grant.partition.database, key) for key in read_grant.keys.values()]
        end_us = grant.now_us + grant.ttl_us
        date_us = grant.now_us if read_grant.is_dated else None
        visibility, ttl_us = read_grant.visibility, grant.ttl_us
        return cache_headers(visibility, ttl_us, end_us, tags, hit=hit, date_us=date_us)

    def record_versions(self, read_grant: ReadGrant, outcome: Outcome) -> None:
        """Record the versions that were read in the sketch, so that it can answer next time."""
        if not read_grant.grant.fill or outcome.partial or outcome.freshness is not None:
            return
        versions = {
            key: version
            for group, key in read_grant.keys.items()
            if (version := outcome.versions.get(group)) is not None
        }
        task = asyncio.create_task(self._fill(read_grant, versions))
        # The event loop has only a weak reference to a task.
        self._fills.add(task)
        task.add_done_callback(self._fills.discard)

    async def _fill(self, read_grant: ReadGrant, versions: Mapping[str, int]) -> None:
        try:
            await self._sketch.fill(read_grant.partition, read_grant.grant.fill, versions)
        except SketchUnavailable as error:
            _log.debug("versions were not filled in: %s", error)


def _may_be_kept(route: ClassRoute, preference: ReadPreference) -> bool:
    """Whether answers of a class may be kept at all.

    The expiry of an object (`ttl_s`) is no write that the sketch would see.
    """
    schema = route.schema
    return schema.cache.visibility != "none" and preference in _CACHEABLE and schema.ttl_s is None


def _keys(partition: Partition, id_: str, groups: Sequence[str]) -> Mapping[str, str]:
    return {group: str(CacheKey(partition.class_name, id_, group)) for group in groups}
