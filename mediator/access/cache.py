"""What a replica knows of tenants, keys and owners: a snapshot, looked at anew every second.

All of it is held in memory, so a request costs no round trip, and neither does a key that does not
exist: trying ids out puts no load on the catalogue. What was changed here is in force at once,
what was changed at another replica within about a second.

Where the catalogue does not answer, the last snapshot holds for `BELIEVED_S`; then nobody is let
in, for a key may have been revoked meanwhile.
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

__all__ = ["BELIEVED_S", "REFRESHED_S", "AccessCache", "AccessSnapshot", "AccessSource", "Tenant"]

REFRESHED_S: Final = 1.0
BELIEVED_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant.

    Attributes:
        name: Its name.
        databases: What it owns.
        limits: Its own limits, by name; what is left out is as the settings say.
    """

    name: str
    databases: tuple[str, ...] = ()
    limits: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AccessSnapshot:
    """Tenants and keys at one version."""

    version: int = -1
    tenants: Mapping[str, Tenant] = field(default_factory=dict)
    keys: Mapping[str, ApiKey] = field(default_factory=dict)
    owners: Mapping[str, str] = field(default_factory=dict)


class AccessSource(Protocol):
    """Where snapshots come from; every method raises `Unavailable` and nothing else."""

    async def version(self) -> int:
        """Return the newest version."""

    async def snapshot(self) -> AccessSnapshot:
        """Read everything, as of one version."""


class AccessCache:
    """The snapshot in force.

    Args:
        source: Where it comes from.
        clock: The time.
    """

    def __init__(self, source: AccessSource, clock: Clock) -> None:
        self._source = source
        self._clock = clock
        self._snapshot = AccessSnapshot()
        self._seen_s = clock.monotonic()
        self._turn = asyncio.Lock()

    @property
    def current(self) -> AccessSnapshot:
        """The snapshot.

        Raises:
            Unavailable: It is too old to be believed.
        """
        if self._clock.monotonic() - self._seen_s > BELIEVED_S:
            detail = "The catalogue has not answered for too long to know which keys still hold."
            raise Unavailable(detail, system="catalogue", retry_after_s=5)
        return self._snapshot

    def owner(self, database: str) -> str | None:
        """Return the tenant that owns a database, if any."""
        return self.current.owners.get(database)

    async def refresh(self) -> None:
        """Look for a newer snapshot."""
        async with self._turn:
            asked_s = self._clock.monotonic()
            if await self._source.version() != self._snapshot.version:
                self._snapshot = await self._source.snapshot()
            self._seen_s = asked_s

    def periodic_tasks(self) -> list[PeriodicTask]:
        """Return what is to be done again and again."""
        return [PeriodicTask("looking for changed keys", REFRESHED_S, self.refresh)]
