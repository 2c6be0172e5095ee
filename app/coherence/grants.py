"""Reuse of recent grants, without a call of the sketch.

A report moves the latest expiry of a key's copies. Another copy that expires no later changes
nothing in the sketch: a write that begins meanwhile puts every copy up to that expiry into the
filter. So a replica that rereads a key uses the rest of its last grant, as long as most of the
requested TTL remains (docs/coherence.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from mediator.model.filters import Filter
from mediator.query.access_predicates import access_predicates_of
from mediator.routing.model import ClassRoute
from sketch.protocol.port import CacheGrant, Partition

__all__ = ["MAX_UNCOVERED", "GrantCache", "GrantKey", "UncoveredQueries"]

GrantKey = tuple[str, str, str, tuple[str, ...]]
"""Database, class, id, and the selected cache groups."""

_MAX_GRANTS: Final = 10_000
_MIN_SHARE: Final = 0.75
"""The share of the estimated TTL that a grant must have left to be reused."""


@dataclass(frozen=True, slots=True)
class _Entry:
    route: ClassRoute
    requested_s: float
    grant: CacheGrant


class GrantCache:
    """The latest grants of a limited number of keys."""

    def __init__(self, max_grants: int = _MAX_GRANTS) -> None:
        self._max_grants = max_grants
        self._entries: dict[GrantKey, _Entry] = {}

    def put(self, key: GrantKey, route: ClassRoute, grant: CacheGrant, requested_s: float) -> None:
        """Cache a grant that was requested at `requested_s` or later, by the monotonic clock."""
        # Removed first, so that it moves to the end: the first entry is the oldest grant.
        self._entries.pop(key, None)
        if grant.ttl_us > 0:
            self._entries[key] = _Entry(route, requested_s, grant)
            if len(self._entries) > self._max_grants:
                del self._entries[next(iter(self._entries))]

    def reuse(
        self, key: GrantKey, route: ClassRoute, ttl_us: int, now_s: float
    ) -> CacheGrant | None:
        """Return the rest of a grant, if it is long enough and has the same layout."""
        entry = self._entries.get(key)
        if entry is None or entry.route is not route:
            return None
        # An upper bound of the time since the sketch's answer, which came after the request.
        elapsed_us = math.ceil((now_s - entry.requested_s) * 1_000_000)
        remaining_us = min(entry.grant.ttl_us - elapsed_us, ttl_us)
        if remaining_us <= 0 or remaining_us < _MIN_SHARE * ttl_us:
            return None
        return CacheGrant(entry.grant.now_us + elapsed_us, remaining_us)


MAX_UNCOVERED: Final = 100
"""Uncovered queries of a class whose results may be cached at the same time, by one replica."""


class UncoveredQueries:
    """The uncovered queries that this replica has registered, with their latest expiries."""

    def __init__(self) -> None:
        self._until_s: dict[Partition, dict[str, float]] = {}

    def admit(
        self, partition: Partition, key: str, filter_: Filter | None, now_s: float, ttl_s: float
    ) -> bool:
        """Whether the result of a query may be cached; then an uncovered one counts for `ttl_s`."""
        if access_predicates_of(filter_) is not None:
            return True
        expiries = self._until_s.setdefault(partition, {})
        if key not in expiries and len(expiries) >= MAX_UNCOVERED:
            expiries = {k: until_s for k, until_s in expiries.items() if until_s > now_s}
            self._until_s[partition] = expiries
            if len(expiries) >= MAX_UNCOVERED:
                return False
        expiries[key] = now_s + ttl_s
        return True
