"""The number of objects of tenants: counted periodically, and adjusted by writes in between.

A write costs no round trip: it is checked against the last count, adjusted by this process's
creations and deletions since. So a tenant can exceed its limit by objects created through other
replicas between two counts. Writes during a count may count twice until the next one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, TypeAlias

from mediator.base.clock import Clock
from mediator.base.errors import Unavailable

__all__ = ["COUNTED_EVERY_S", "CountObjects", "StoredObjects"]

COUNTED_EVERY_S: Final = 30.0
"""Seconds between two counts, unless they take long."""

_PAUSE_FACTOR: Final = 20
"""The pause after a count, as a multiple of its duration: counting loads the systems."""

CountObjects: TypeAlias = Callable[[str], Awaitable[int]]
"""Counts the objects of a database; raises `Unavailable`."""


class StoredObjects:
    def __init__(self, count: CountObjects, clock: Clock) -> None:
        self._count = count
        self._clock = clock
        self._counts: dict[str, int] = {}
        self._growth: Counter[str] = Counter()
        self.due_s = clock.monotonic()
        """When the next count is due."""

    @property
    def counts(self) -> Mapping[str, int]:
        return {tenant: self.of(tenant) for tenant in self._counts}

    def of(self, tenant: str) -> int:
        """Return the number of objects of a tenant; before the first count, those created here."""
        return self._counts.get(tenant, 0) + self._growth[tenant]

    def adjust(self, tenant: str, by: int) -> None:
        """Count created or (below 0) deleted objects."""
        self._growth[tenant] += by

    async def measure(self, tenants: Mapping[str, Iterable[str]]) -> None:
        """Count the objects of all bounded tenants, given with their databases, if due.

        A tenant with a database that cannot be counted keeps its former number; the error is
        raised at the end.
        """
        started_s = self._clock.monotonic()
        if started_s < self.due_s:
            return
        self._counts = {name: n for name, n in self._counts.items() if name in tenants}
        failed: Unavailable | None = None
        for tenant, databases in tenants.items():
            try:
                await self._measure(tenant, databases)
            except Unavailable as error:
                failed = error
        now_s = self._clock.monotonic()
        self.due_s = now_s + max(COUNTED_EVERY_S, _PAUSE_FACTOR * (now_s - started_s))
        if failed is not None:
            raise failed

    async def _measure(self, tenant: str, databases: Iterable[str]) -> None:
        # Objects created during the count stay in `_growth`: they count once or twice.
        before = self._growth[tenant]
        total = sum([await self._count(database) for database in databases])
        self._counts[tenant] = total
        self._growth[tenant] -= before
