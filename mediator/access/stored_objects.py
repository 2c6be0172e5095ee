"""The number of objects of tenants: counted periodically, and adjusted by writes in between.

A write costs no round trip: it is checked against the last count and what this process has created
and deleted since. So a tenant may exceed its limit by what it creates through other replicas
between two counts. Writes during a count may count twice until the next one.
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
"""The pause after a count, in times of its duration: a count is a load on the systems."""

CountObjects: TypeAlias = Callable[[str], Awaitable[int]]
"""Counts the objects of a database; raises `Unavailable`."""


class StoredObjects:
    def __init__(self, count: CountObjects, clock: Clock) -> None:
        self._count = count
        self._clock = clock
        self._counted: dict[str, int] = {}
        self._grown: Counter[str] = Counter()
        self.due_s = clock.monotonic()
        """When the next count is due."""

    @property
    def known(self) -> Mapping[str, int]:
        return {tenant: self.of(tenant) for tenant in self._counted}

    def of(self, tenant: str) -> int:
        """Return how many objects a tenant has; before the first count, what was created here."""
        return self._counted.get(tenant, 0) + self._grown[tenant]

    def grew(self, tenant: str, by: int) -> None:
        """Count objects that were created, or (below 0) deleted."""
        self._grown[tenant] += by

    async def measure(self, tenants: Mapping[str, Iterable[str]]) -> None:
        """Count the objects of all bounded tenants, given with their databases, if that is due.

        A tenant with a database that cannot be counted keeps its former number; the error is raised
        in the end.
        """
        started_s = self._clock.monotonic()
        if started_s < self.due_s:
            return
        self._counted = {name: n for name, n in self._counted.items() if name in tenants}
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
        # What is created during the count stays in `_grown`: it may count twice, never not at all.
        before = self._grown[tenant]
        counted = sum([await self._count(database) for database in databases])
        self._counted[tenant] = counted
        self._grown[tenant] -= before
