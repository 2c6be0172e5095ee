"""Registration of replicas that acknowledge writes which initially only they can relay.

Where outboxes are in the records (`PendingChanges`), only the replica that made a write knows of
it. A replica therefore registers first and acknowledges such writes only while it holds a lease.
The feed is complete only up to the point where every registered replica has appended its changes
(docs/materialised-views.md, "Who may acknowledge").

No times of two machines are compared: the holder counts its lease from before its request, the
others from after they first saw its token, each by its own monotonic clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol
from uuid import uuid4

from mediator.base.clock import DRIFT, Clock, StabilityTimer
from mediator.routing.model import RoutingModel
from mediator.stores.port import Fragment, PendingChanges, Store

__all__ = [
    "EXPIRED_S",
    "LEASE_S",
    "RENEW_S",
    "LeasedAcknowledging",
    "WriterRegistrations",
    "WriterRegistry",
    "WriterStatus",
    "Writers",
]

LEASE_S: Final = 5.0
"""Seconds for which a replica may acknowledge, from before it renewed its registration."""

RENEW_S: Final = 0.5
"""Seconds between two renewals."""

EXPIRED_S: Final = LEASE_S * (1 + 2 * DRIFT)
"""Seconds after which a lease has expired by any clock."""

WAIT_S: Final = 2.0
"""How long a write waits for its replica's lease, which comes in a moment unless Redis is down."""


@dataclass(frozen=True, slots=True)
class WriterRegistrations:
    """The registered writers.

    Attributes:
        run: Run id of the server that stores them.
        tokens: The last token of each registered replica.
        recovered: By system, the run in which the changes of all unregistered replicas have been
            relayed and none of them holds a lease.
    """

    run: str
    tokens: Mapping[str, str]
    recovered: Mapping[str, str]


class WriterRegistry(Protocol):
    """Keeps the registrations of all replicas. Every method raises `Unavailable`."""

    async def register(self, replica: str, token: str) -> None:
        """Register a replica."""

    async def renew(self, replica: str, token: str) -> bool:
        """Replace the token of a replica; False if it is not registered (any more)."""

    async def revoke(self, replica: str, token: str) -> None:
        """Remove a registration if this is still its last token."""

    async def note_recovered(self, system: str, run: str) -> None:
        """Record that a system is recovered in a run, if that run is still the server's."""

    async def read(self) -> WriterRegistrations:
        """Return the registrations."""


@dataclass(frozen=True, slots=True)
class WriterStatus:
    """A replica's knowledge of all writers.

    Attributes:
        registrations: The registrations as read.
        has_waited: Whether no unregistered replica holds a lease: this process has seen the same
            run of the server, and the same recovered systems, for longer than a lease.
    """

    registrations: WriterRegistrations
    has_waited: bool

    def is_recovered(self, system: str) -> bool:
        """Whether every replica that may have written to a system is registered, or recovered."""
        return self.registrations.recovered.get(system) == self.registrations.run


class Writers:
    """One replica's registration, and its check of the others'.

    Attributes:
        registration: Number of this replica's registration; 0: none yet. After a new one it must
            publish its progress to every feed again.
    """

    def __init__(self, registry: WriterRegistry, replica: str, clock: Clock) -> None:
        self._registry = registry
        self._replica = replica
        self._clock = clock
        self._ends_at = float("-inf")
        self._token = ""
        self._counted: set[tuple[str, str]] = set()
        self._changed = asyncio.Event()
        self._tokens = StabilityTimer(clock)
        self._runs = StabilityTimer(clock)
        self.registration = 0

    async def renew(self) -> None:
        """Renew the lease; register if this replica is not registered (any more)."""
        # Before the request: the lease must end here before others consider it expired.
        requested_at, token = self._clock.monotonic(), uuid4().hex
        if not (self.registration and await self._registry.renew(self._replica, token)):
            self._counted.clear()
            self.registration += 1
            await self._registry.register(self._replica, token)
        self._token, self._ends_at = token, requested_at + LEASE_S
        self._wake_waiting()

    async def leave(self) -> None:
        """Stop acknowledging and remove the registration: all changes are relayed."""
        self._ends_at = float("-inf")
        self._counted.clear()
        if self._token:
            await self._registry.revoke(self._replica, self._token)

    def note_counted(self, system: str, database: str, registration: int) -> None:
        """Record that a database's feed (by its id) waits for this replica as a system's writer."""
        # Not under a registration that other replicas have revoked since.
        if registration == self.registration:
            self._counted.add((system, database))
            self._wake_waiting()

    def may_acknowledge(self, system: str, database: str) -> bool:
        counted = (system, database) in self._counted
        return counted and self._clock.monotonic() < self._ends_at

    async def wait(self, system: str, database: str) -> bool:
        """Wait a moment until writes can be acknowledged; return whether they can."""
        with suppress(TimeoutError):
            async with asyncio.timeout(WAIT_S):
                while not self.may_acknowledge(system, database):
                    await self._changed.wait()
        return self.may_acknowledge(system, database)

    async def check(self) -> WriterStatus:
        """Read the registrations, and revoke those whose leases have expired."""
        requested_at = self._clock.monotonic()
        registrations = await self._registry.read()
        # After a new run of the server, its data may be older than the data seen before.
        state = (registrations.run, registrations.recovered)
        unchanged_s = self._runs.observe("", state, requested_at)
        if not unchanged_s:
            self._tokens.retain(())
        self._tokens.retain(registrations.tokens.keys())
        for replica, token in registrations.tokens.items():
            if self._tokens.observe(replica, token, requested_at) > EXPIRED_S:
                await self._registry.revoke(replica, token)
        return WriterStatus(registrations, unchanged_s > EXPIRED_S)

    async def note_recovered(self, system: str, status: WriterStatus) -> None:
        await self._registry.note_recovered(system, status.registrations.run)

    def _wake_waiting(self) -> None:
        """Wake waiting writes; later ones wait for the next change."""
        self._changed.set()
        self._changed = asyncio.Event()


class LeasedAcknowledging:
    """Decides which writes may be acknowledged only under this replica's lease.

    These are writes that initially only this replica can relay, to classes with a copy: answers
    from the copy state its age, which could not account for them. Implements
    `mediator.operations.calls.Acknowledging`.
    """

    def __init__(self, writers: Writers, model: Callable[[], RoutingModel]) -> None:
        self._writers = writers
        self._model = model
        self._kinds: dict[type[Store], bool] = {}

    def concerns(self, store: Store, fragment: Fragment) -> bool:
        kind = type(store)
        if kind not in self._kinds:
            self._kinds[kind] = isinstance(store, PendingChanges)
        return self._kinds[kind] and self._has_copy(fragment)

    async def allows(self, fragment: Fragment) -> bool:
        system, database = fragment.system, fragment.database_id
        allowed = self._writers.may_acknowledge(system, database)
        return allowed or await self._writers.wait(system, database)

    def _has_copy(self, fragment: Fragment) -> bool:
        database = self._model().by_id.get(fragment.database_id)
        route = database.classes.get(fragment.class_name) if database else None
        # A class that is unknown here may have been created by another replica, with a copy.
        return route is None or route.copy is not None
