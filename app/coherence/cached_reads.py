"""Before an answer is read, the sketch is asked for how long it may be kept (docs/protocol.md)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from app.coherence.cached_leases import Lingering
from app.coherence.grants import Grants
from app.coherence.layouts import Layouts, schema_of
from app.coherence.uncovered_queries import Uncovered
from app.http.caching import NO_STORE, CachePolicy
from app.http.etags import format_tag
from app.http.message import Headers
from app.http.paths import parse_pairs
from app.http.preconditions import Preconditions
from mediator.base.clock import Clock
from mediator.model.filters import Filter
from mediator.model.guard import guard_key
from mediator.model.operations import Outcome
from mediator.routing.freshness import ANY, STRONG, WHOLE, ReadPreference
from mediator.routing.model import ClassRoute
from sketch.protocol.port import Grant, Partition, ServerSketch, SketchUnavailable
from sketch.protocol.queries import LONGEST, key_of_query, spelled
from sketch.protocol.tags import tag_of
from sketch.protocol.times import granted_us
from sketch.ttl import TtlEstimator
from sketch.ttl.events import TtlGranted

__all__ = ["Asked", "CachedReads"]

_CACHEABLE: Final = (ANY, STRONG, WHOLE)
_NONE: Final = Grant(0)
_log = logging.getLogger("portolan.coherence")


@dataclass(frozen=True, slots=True)
class Asked:
    """What the sketch granted an answer before it was read.

    Attributes:
        partition: The class.
        keys: What the answer shows, by cache group.
        visibility: Who may keep it.
        grant: What the sketch granted.
        asked_s: When it was asked, by the monotonic clock.
        is_dated: Whether the answer has no life that the sketch knows of, and tells its date.
    """

    partition: Partition
    keys: Mapping[str, str]
    visibility: Literal["public", "private"]
    grant: Grant
    asked_s: float
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


class CachedReads:
    """Makes answers cacheable.

    Args:
        sketch: The server's sketch.
        layouts: Has the sketch know what keys stand for.
        lingering: Marks that give way to reads.
        estimator: Says for how long answers should live.
        answer_s: Within how many seconds an answer must leave after the sketch was asked: its part
            of the margin M.
        clock: The time.
        tell: Told of every life that is granted.
        sketch_time_us: Returns a time that the sketch's clock has shown by now, if it is known.
    """

    def __init__(
        self,
        sketch: ServerSketch,
        layouts: Layouts,
        lingering: Lingering,
        estimator: TtlEstimator,
        answer_s: float,
        clock: Clock,
        tell: Callable[[TtlGranted], None],
        sketch_time_us: Callable[[], int | None],
    ) -> None:
        self._sketch_time_us = sketch_time_us
        self._tell = tell
        self._sketch = sketch
        self._layouts = layouts
        self._lingering = lingering
        self._estimator = estimator
        self._answer_s = answer_s
        self._clock = clock
        self._fills: set[asyncio.Task[None]] = set()
        self._grants = Grants()
        self._uncovered = Uncovered()

    async def ask(
        self,
        partition: Partition,
        route: ClassRoute,
        id_: str,
        groups: Sequence[str],
        preference: ReadPreference,
        *,
        conditional: bool,
    ) -> Asked | None:
        """Ask for a life of an object's answer; None: it must not be kept.

        It must be asked before the systems are read: a write that begins in between sees that a
        copy may be in a cache. What is granted holds for an answer of the systems, not of the
        view.

        Args:
            partition: The class.
            route: Its route.
            id_: The object.
            groups: The cache groups of what is shown of it, in order.
            preference: What is asked of the freshness.
            conditional: Whether the client has a copy: then the sketch may know that it is current.
        """
        if not _may_be_kept(route, preference):
            return None
        keys = _keys(partition, id_, groups)
        names = tuple(keys.values())

        async def report(ttl_s: float) -> Grant:
            place = (*partition, id_, tuple(groups))
            asked_s = self._clock.monotonic()
            if not conditional:
                life_us = granted_us(self._sketch.limits, ttl_s)
                again = self._grants.again(place, route, life_us, asked_s)
                if again is not None:
                    return again
            await self._lingering.give_way(partition, names)
            grant = await self._sketch.report_read(partition, names, ttl_s)
            self._grants.keep(place, route, grant, asked_s)
            return grant

        return await self._asked(partition, route, keys, report)

    def dated(
        self,
        partition: Partition,
        route: ClassRoute,
        id_: str,
        groups: Sequence[str],
        preference: ReadPreference,
        max_age_s: int,
    ) -> Asked | None:
        """Date an answer that is about to be read; None: it must not be kept by shared caches.

        The sketch is not asked, and filters do not name what becomes outdated: who reads the answer
        looks at its date. It was true then or later, as the systems are read after this.

        Args:
            partition: The class.
            route: Its route.
            id_: The object.
            groups: The cache groups of what is shown of it, in order.
            preference: What is asked of the freshness.
            max_age_s: For how long caches may keep it.
        """
        date_us, now_s = self._sketch_time_us(), self._clock.now()
        if date_us is None or route.schema.cache.visibility != "public":
            return None
        if not _may_be_kept(route, preference):
            return None
        keys = _keys(partition, id_, groups)
        self._estimator.missed(partition, tuple(keys.values()), now_s, 0.0)
        grant = Grant(date_us, max_age_s * 1_000_000)
        return Asked(partition, keys, "public", grant, self._clock.monotonic(), is_dated=True)

    async def _asked(
        self,
        partition: Partition,
        route: ClassRoute,
        keys: Mapping[str, str],
        report: Callable[[float], Awaitable[Grant]],
    ) -> Asked:
        cache = route.schema.cache
        assert cache.visibility != "none"
        names, now_s = tuple(keys.values()), self._clock.now()
        ttl_s = min(cache.max_ttl_s, self._estimator.ttl_s(partition, names, now_s))
        asked_s = self._clock.monotonic()
        try:
            # Keys under another layout than the one in force say nothing to writers.
            present = await self._layouts.adopt(partition) is route
            grant = await report(ttl_s) if present else _NONE
        except SketchUnavailable as error:
            _log.warning("nothing may be cached: %s", error)
            grant = _NONE
        if not grant.adopted:
            self._layouts.forget(partition)
        life_s = grant.ttl_us / 1_000_000
        self._estimator.missed(partition, names, now_s, life_s)
        self._tell(TtlGranted(partition, life_s))
        return Asked(partition, keys, cache.visibility, grant, asked_s)

    async def ask_query(
        self,
        partition: Partition,
        route: ClassRoute,
        query: bytes,
        filter_: Filter | None,
        preference: ReadPreference,
    ) -> Asked | None:
        """Ask for a life of a query's answer, which registers it; None: it must not be kept.

        Args:
            partition: The class.
            route: Its route.
            query: The parameters as they are spelled in the address.
            filter_: The filter that they come to.
            preference: What is asked of the freshness.
        """
        if not _may_be_kept(route, preference):
            return None
        spelling = spelled(parse_pairs(query))
        if spelling.encode() != query or len(query) > LONGEST:
            return None
        key, schema = key_of_query(partition.class_name, spelling), schema_of(route)
        now_s, longest_s = self._clock.monotonic(), route.schema.cache.max_ttl_s
        if not self._uncovered.admit(partition, key, filter_, now_s, longest_s):
            return None

        async def report(ttl_s: float) -> Grant:
            await self._lingering.give_way_to_results(partition)
            return await self._sketch.report_query(partition, key, ttl_s, schema)

        return await self._asked(partition, route, {"": key}, report)

    def current_tag(self, asked: Asked, schema_version: int, wanted: Preconditions) -> str | None:
        """Return the tag to answer 304 with, if the sketch knows that the client has the object.

        Of a deletion the sketch knows the version, too. Nobody was ever told a tag of that, but
        ``*`` would match it.

        Raises:
            PreconditionFailed: If-Match does not match.
        """
        if wanted.if_none_match is None or wanted.if_none_match.any:
            return None
        if (versions := asked.versions) is None:
            return None
        tag = format_tag(schema_version, tuple(asked.keys), versions)
        return tag if wanted.not_modified(tag) else None

    def keeping(self, asked: Asked, *, hit: bool = False) -> Headers:
        """Say who may keep an answer that is about to leave."""
        grant = asked.grant
        if grant.ttl_us <= 0 or self._clock.monotonic() - asked.asked_s > self._answer_s:
            return [NO_STORE]
        tags = [tag_of(asked.partition.database, key) for key in asked.keys.values()]
        end_us = grant.now_us + grant.ttl_us
        date_us = grant.now_us if asked.is_dated else None
        return CachePolicy(asked.visibility, grant.ttl_us, end_us, tags, hit, date_us).headers()

    def learn(self, asked: Asked, outcome: Outcome) -> None:
        """Let the sketch know the versions that were read, so that it can answer next time."""
        if not asked.grant.fill or outcome.partial or outcome.freshness is not None:
            return
        versions = {
            key: version
            for group, key in asked.keys.items()
            if (version := outcome.versions.get(group)) is not None
        }
        task = asyncio.create_task(self._fill(asked, versions))
        self._fills.add(task)
        task.add_done_callback(self._fills.discard)

    async def _fill(self, asked: Asked, versions: Mapping[str, int]) -> None:
        try:
            await self._sketch.fill(asked.partition, asked.grant.fill, versions)
        except SketchUnavailable as error:
            _log.debug("versions were not filled in: %s", error)


def _may_be_kept(route: ClassRoute, preference: ReadPreference) -> bool:
    """Whether answers of a class may be kept at all.

    The end of an object's own life (`ttl_s`) is no write that the sketch would see.
    """
    schema = route.schema
    return schema.cache.visibility != "none" and preference in _CACHEABLE and schema.ttl_s is None


def _keys(partition: Partition, id_: str, groups: Sequence[str]) -> Mapping[str, str]:
    return {group: guard_key(partition.class_name, id_, group) for group in groups}
