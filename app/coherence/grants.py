"""Grants that reads got a moment ago, reused without a call of the sketch.

A report moves the latest expiry of a key's copies. A further copy that expires no later changes
nothing of what the sketch knows: a write that begins meanwhile has every copy up to that end in the
filter. So a replica that reads a key again uses what is left of its last grant, as long as most of
the TTL it requests is left (docs/coherence.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from mediator.model.filters import Filter
from mediator.query.access_predicates import access_predicates_of
from mediator.routing.model import ClassRoute
from sketch.protocol.port import CacheGrant, Partition

__all__ = ["MOST_UNCOVERED", "GrantCache", "GrantKey", "UncoveredQueries"]

GrantKey = tuple[str, str, str, tuple[str, ...]]
"""Database, class, id, and the cache groups that are shown."""

_MOST: Final = 10_000
_ENOUGH: Final = 0.75
"""The share of the estimated TTL that a grant must have left to be reused."""


@dataclass(frozen=True, slots=True)
class _Entry:
    route: ClassRoute
    requested_s: float
    grant: CacheGrant


class GrantCache:
    """The latest grant for each key, of a limited number."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._entries: dict[GrantKey, _Entry] = {}

    def put(self, key: GrantKey, route: ClassRoute, grant: CacheGrant, requested_s: float) -> None:
        """Keep a grant that was requested at `requested_s` or later, by the monotonic clock."""
        # Removed first, so that it goes to the end: the first entry is the oldest grant.
        self._entries.pop(key, None)
        if grant.ttl_us > 0:
            self._entries[key] = _Entry(route, requested_s, grant)
            if len(self._entries) > self._most:
                del self._entries[next(iter(self._entries))]

    def reuse(
        self, key: GrantKey, route: ClassRoute, ttl_us: int, now_s: float
    ) -> CacheGrant | None:
        """Return what is left of a grant, if it is enough and of the same layout."""
        entry = self._entries.get(key)
        if entry is None or entry.route is not route:
            return None
        # The sketch's clock shows no more than this: its answer came after the request.
        passed_us = math.ceil((now_s - entry.requested_s) * 1_000_000)
        left_us = min(entry.grant.ttl_us - passed_us, ttl_us)
        if left_us <= 0 or left_us < _ENOUGH * ttl_us:
            return None
        return CacheGrant(entry.grant.now_us + passed_us, left_us)


MOST_UNCOVERED: Final = 100
"""Uncovered queries of a class whose results may be cached at the same time, by one replica."""


class UncoveredQueries:
    """Which uncovered queries have been registered by this replica, and until when at most."""

    def __init__(self) -> None:
        self._until_s: dict[Partition, dict[str, float]] = {}

    def admit(
        self, partition: Partition, key: str, filter_: Filter | None, now_s: float, ttl_s: float
    ) -> bool:
        """Whether the result of a query may be cached; then an uncovered one counts for `ttl_s`."""
        if access_predicates_of(filter_) is not None:
            return True
        known = self._until_s.setdefault(partition, {})
        if key not in known and len(known) >= MOST_UNCOVERED:
            known = {k: until_s for k, until_s in known.items() if until_s > now_s}
            self._until_s[partition] = known
            if len(known) >= MOST_UNCOVERED:
                return False
        known[key] = now_s + ttl_s
        return True
