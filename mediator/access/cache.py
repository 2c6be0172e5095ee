"""A cache of tenants, keys and owners: a snapshot, refreshed every second.

It is entirely in memory, so a request costs no round trip, nor does an unknown key: guessing ids
puts no load on the catalogue. Changes by this replica are in force immediately, those by another
one within about a second.

If the catalogue does not answer, the last snapshot is valid for `VALID_S`; then all requests are
refused, as keys may have been revoked meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from mediator.access.keys import ApiKey
from mediator.base.clock import Clock
from mediator.base.errors import Unavailable
from mediator.base.periodic_tasks import PeriodicTask

__all__ = ["REFRESH_S", "VALID_S", "AccessCache", "AccessSnapshot", "AccessSource", "Tenant"]

REFRESH_S: Final = 1.0
VALID_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant; limits missing in `limits` come from the settings."""

    name: str
    databases: tuple[str, ...] = ()
    limits: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AccessSnapshot:
    version: int = -1
    tenants: Mapping[str, Tenant] = field(default_factory=dict)
    keys: Mapping[str, ApiKey] = field(default_factory=dict)
    owners: Mapping[str, str] = field(default_factory=dict)


class AccessSource(Protocol):
    """The source of snapshots; every method raises `Unavailable` and nothing else."""

    async def version(self) -> int:
        """Return the newest version."""

    async def snapshot(self) -> AccessSnapshot:
        """Read everything, as of one version."""


class AccessCache:
    def __init__(self, source: AccessSource, clock: Clock) -> None:
        self._source = source
        self._clock = clock
        self._snapshot = AccessSnapshot()
        self._read_s = clock.monotonic()
        self._lock = asyncio.Lock()

    @property
    def is_valid(self) -> bool:
        """Whether the snapshot is recent enough to know which keys are valid."""
        return self._clock.monotonic() - self._read_s <= VALID_S

    @property
    def current(self) -> AccessSnapshot:
        """The snapshot; raises `Unavailable` if it is too old."""
        if not self.is_valid:
            detail = "The catalogue has not answered for too long to know which keys are valid."
            raise Unavailable(detail, system="catalogue", retry_after_s=5)
        return self._snapshot

    def owner(self, database: str) -> str | None:
        return self.current.owners.get(database)

    async def refresh(self) -> None:
        async with self._lock:
            # The age counts from before the request: the reply may be older than its arrival.
            requested_s = self._clock.monotonic()
            if await self._source.version() != self._snapshot.version:
                self._snapshot = await self._source.snapshot()
            self._read_s = requested_s

    def periodic_tasks(self) -> list[PeriodicTask]:
        return [PeriodicTask("refresh access cache", REFRESH_S, self.refresh)]
