"""Queries that the index does not cover: each write has to be judged by them, so a few may be kept.

The index leads from the values of an object to the queries that these concern. It has no way to
those whose filter names no value, part or bound: `like` that begins with a wildcard, `ne`,
    `not`,
`exists`, no filter at all.
"""

from __future__ import annotations

from typing import Final

from mediator.model.filters import Filter
from mediator.query.invalidation.access_predicates import access_predicates_of
from sketch.protocol.port import Partition

__all__ = ["MOST_UNCOVERED", "UncoveredQueries"]

MOST_UNCOVERED: Final = 100
"""Uncovered queries of a class whose results may be cached at the same time, by one replica."""


class UncoveredQueries:
    """Which uncovered queries have been registered by this replica, and until when at most."""

    def __init__(self) -> None:
        self._until_s: dict[Partition, dict[str, float]] = {}

    def admit(
        self, partition: Partition, key: str, filter_: Filter | None, now_s: float, ttl_s: float
    ) -> bool:
        """Whether the result of a query may be kept."""
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
