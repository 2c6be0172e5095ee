"""Which replicas may acknowledge writes that at first only they can bring to the feed.

Where outboxes are in the records (`PendingChanges`), nobody knows of a write but the replica that
made it. So it registers first, and then acknowledges such writes only while it holds a lease; the
others take the feed for complete only up to where every registered replica has brought its own
(docs/materialised-views.md, "Who may acknowledge").

No time of two machines is compared. The holder counts its lease from before it asked for it, the
others count from after they have seen its token first, each by its own monotonic clock: once they
have seen nothing else for longer than a lease, it is over. They then revoke the registration, in a
step that compares the token, and look for what the replica wrote. Who finds its registration gone
begins anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol
from uuid import uuid4

from mediator.base.clock import DRIFT, Clock, StabilityTimer

__all__ = ["LEASE_S", "OVER_S", "RENEW_S", "Seen", "SharedWriters", "Standing", "Writers"]

LEASE_S: Final = 5.0
"""Seconds for which a replica may acknowledge after it began to renew its registration."""

RENEW_S: Final = 0.5
"""Seconds between two renewals."""

OVER_S: Final = LEASE_S * (1 + 2 * DRIFT)
"""Seconds after which a lease is over by any clock."""

WAIT_S: Final = 2.0
"""How long a write waits for its replica's lease: it is there in a moment, or Redis is not."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What is kept of writers.

    Attributes:
        run: Id of the run of the server that keeps it.
        tokens: The last token of each registered replica.
        settled: By system the run in which all who are not registered hold no lease any more, and
            have been looked after.
    """

    run: str
    tokens: Mapping[str, str]
    settled: Mapping[str, str]


class SharedWriters(Protocol):
    """Keeps the registrations of all replicas. Every method raises `Unavailable`."""

    async def register(self, replica: str, token: str) -> None:
        """Register a replica."""

    async def renew(self, replica: str, token: str) -> bool:
        """Replace the token of a replica; False if it is not registered (any more)."""

    async def revoke(self, replica: str, token: str) -> None:
        """End a registration, if the token is still its last one."""

    async def settle(self, system: str, run: str) -> None:
        """Note that a system is settled for a run, if that is still the server's."""

    async def look(self) -> Seen:
        """Return what is kept."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What a replica knows of all writers.

    Attributes:
        seen: What was read.
        has_waited: Whether whoever is not registered holds no lease any more: this process has
            seen the server's run, and what is settled, as it is for longer than a lease.
    """

    seen: Seen
    has_waited: bool

    def is_settled(self, system: str) -> bool:
        """Whether all who may have written to a system are registered, or looked after."""
        return self.seen.settled.get(system) == self.seen.run


class Writers:
    """One replica's registration, and its look at the others'.

    Args:
        shared: Keeps the registrations.
        replica: Name of this replica.
        clock: Its monotonic time is used.

    Attributes:
        registration: Number of this replica's registration; 0: none so far. After another one it
            has to tell every feed anew how far it is.
    """

    def __init__(self, shared: SharedWriters, replica: str, clock: Clock) -> None:
        self._shared = shared
        self._replica = replica
        self._clock = clock
        self._ends_at = float("-inf")
        self._token = ""
        self._counted: set[tuple[str, str]] = set()
        self._changed = asyncio.Event()
        self._tokens: StabilityTimer[str] = StabilityTimer(clock)
        self._runs: StabilityTimer[str] = StabilityTimer(clock)
        self.registration = 0

    async def renew(self) -> None:
        """Hold the lease from now on; register if that was never done, or is undone."""
        asked_at, token = self._clock.monotonic(), uuid4().hex
        if not (self.registration and await self._shared.renew(self._replica, token)):
            self._counted.clear()
            self.registration += 1
            await self._shared.register(self._replica, token)
        self._token, self._ends_at = token, asked_at + LEASE_S
        self._tell()

    async def leave(self) -> None:
        """Acknowledge nothing more, and end the registration: everything has been brought."""
        self._ends_at = float("-inf")
        self._counted.clear()
        if self._token:
            await self._shared.revoke(self._replica, self._token)

    def count(self, system: str, database: str, registration: int) -> None:
        """Note that a database's feed (by its id) counts this replica among a system's writers."""
        if registration == self.registration:
            self._counted.add((system, database))
            self._tell()

    def may_acknowledge(self, system: str, database: str) -> bool:
        """Whether a write that has just been made, or is about to be, may be acknowledged now."""
        counted = (system, database) in self._counted
        return counted and self._clock.monotonic() < self._ends_at

    async def wait(self, system: str, database: str) -> bool:
        """Wait a moment until writes may be acknowledged; return whether they may."""
        with suppress(TimeoutError):
            async with asyncio.timeout(WAIT_S):
                while not self.may_acknowledge(system, database):
                    await self._changed.wait()
        return self.may_acknowledge(system, database)

    async def look(self) -> Standing:
        """Look who is registered, and revoke registrations whose leases are over."""
        asked_at = self._clock.monotonic()
        seen = await self._shared.look()
        # Of another run, or if somebody has removed it, what is there may be older than what was.
        unsettled_s = self._runs.observe("", (seen.run, seen.settled), asked_at)
        if not unsettled_s:
            self._tokens.retain(())
        self._tokens.retain(seen.tokens.keys())
        for replica, token in seen.tokens.items():
            if self._tokens.observe(replica, token, asked_at) > OVER_S:
                await self._shared.revoke(replica, token)
        return Standing(seen, unsettled_s > OVER_S)

    async def settle(self, system: str, standing: Standing) -> None:
        """Note that a system is settled: what others had written was looked for meanwhile."""
        await self._shared.settle(system, standing.seen.run)

    def _tell(self) -> None:
        """Wake those that wait; who waits from now on waits for the next change."""
        self._changed.set()
        self._changed = asyncio.Event()
