"""The relays of all systems that keep logs: among all replicas one works on each system."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from mediator.base.cancellation import end
from mediator.base.clock import Clock
from mediator.base.errors import MediatorError
from mediator.base.lease import Lease, Leasing
from mediator.base.observation import (
    ChangesRelayed,
    FeedFellBack,
    FeedGapFound,
    Observation,
    Observer,
    StoreCallFinished,
)
from mediator.changes.feed import Feed, FeedWentBack, LeaseLost
from mediator.changes.relay import LogRelay, RelayResult
from mediator.changes.routes import SystemRoutes
from mediator.stores.guarded import GuardedStore
from mediator.stores.port import ChangeLog, StoreError
from mediator.stores.systems import Systems

__all__ = ["IdleBackoff", "LogRelays"]

MIN_WAIT_S: Final = 0.05
"""A relay of many changes costs as much as one of few, so changes are gathered for this long."""

MAX_WAIT_S: Final = 0.2


class IdleBackoff:
    """Waits that double while there are no changes, and that a wake-up cuts short.

    It does not cut the shortest wait, so that changes which come one by one are relayed together.
    """

    def __init__(self) -> None:
        self._woken = asyncio.Event()
        self._wait_s = MIN_WAIT_S

    def wake(self) -> None:
        """End the wait, as there are changes."""
        self._woken.set()

    async def wait(self, *, found: bool) -> None:
        """Wait before the next read.

        Args:
            found: Whether the last one found anything.
        """
        self._wait_s = MIN_WAIT_S if found else min(self._wait_s * 2, MAX_WAIT_S)
        await asyncio.sleep(MIN_WAIT_S)
        if self._wait_s > MIN_WAIT_S:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._wait_s - MIN_WAIT_S):
                    await self._woken.wait()
        self._woken.clear()  # the next read sees all of them


log = logging.getLogger(__name__)

LEASE_S: Final = 3.0
RENEW_S: Final = 1.0
TRIM_S: Final = 10.0
PAUSE_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class _RunningRelay:
    store: object
    backoff: IdleBackoff
    task: asyncio.Task[None]


class LogRelays:
    """Runs a relay for each system that has logs.

    Args:
        systems: The opened systems.
        feed: The feeds.
        leases: Leases.
        replica: Name of this replica.
        routes: Returns the routes of a system.
        observe: Called with each event.
        clock: The time.
    """

    def __init__(
        self,
        systems: Systems,
        feed: Feed,
        leases: Leasing,
        replica: str,
        routes: Callable[[str], SystemRoutes],
        observe: Observer,
        clock: Clock,
    ) -> None:
        self._systems = systems
        self._feed = feed
        self._leases = leases
        self._replica = replica
        self._routes = routes
        self._observe = observe
        self._clock = clock
        self._running: dict[str, _RunningRelay] = {}

    async def reconcile(self) -> None:
        """Start relays of new systems; cancel those of systems that are gone or were reopened."""
        for name, running in tuple(self._running.items()):
            guarded = self._systems.find(name)
            if guarded is None or guarded.store is not running.store or running.task.done():
                del self._running[name]
                await end([running.task])
        for guarded in tuple(self._systems):
            if guarded.name not in self._running and isinstance(guarded.store, ChangeLog):
                self._start(guarded, guarded.store)

    async def close(self) -> None:
        """Cancel all of them."""
        while self._running:
            _, running = self._running.popitem()
            await end([running.task])

    def on_event(self, event: Observation) -> None:
        """Wake the relay of a system that this process has just written to."""
        if isinstance(event, StoreCallFinished) and event.operation == "write":
            running = self._running.get(event.system)
            if running is not None:
                running.backoff.wake()

    def _start(self, guarded: GuardedStore, store: ChangeLog) -> None:
        backoff = IdleBackoff()
        lease = Lease(f"relay:{guarded.name}", self._replica)
        routes = self._routes(guarded.name)
        relay = LogRelay(store, self._feed, routes, lease)
        worker = _RelayWorker(
            relay, lease, backoff, self._leases, routes, self._feed, self._observe
        )
        task = asyncio.create_task(worker.run(self._clock, guarded))
        self._running[guarded.name] = _RunningRelay(store, backoff, task)


class _RelayWorker:
    """Runs one system's relay while its lease is held."""

    def __init__(
        self,
        relay: LogRelay,
        lease: Lease,
        backoff: IdleBackoff,
        leases: Leasing,
        routes: SystemRoutes,
        feed: Feed,
        observe: Observer,
    ) -> None:
        self._relay = relay
        self._lease = lease
        self._backoff = backoff
        self._leases = leases
        self._routes = routes
        self._feed = feed
        self._observe = observe
        self._failing = False
        self._rolled_back = False

    async def run(self, clock: Clock, guarded: GuardedStore) -> None:
        """Relay until cancelled, whatever happens."""
        try:
            while True:
                await self._attempt(clock, guarded)
                await asyncio.sleep(PAUSE_S)
        finally:
            await self._release()

    async def _attempt(self, clock: Clock, guarded: GuardedStore) -> None:
        try:
            if not guarded.breaker.is_open:
                await self._work(clock)
        except LeaseLost:
            log.info("lost the lease of the relay of %s", self._routes.system)
        except FeedWentBack:
            self._observe(FeedFellBack(self._routes.system))
            self._relay.forget(reached=True)
            self._rolled_back = True
        except (MediatorError, StoreError) as error:
            if not self._failing:
                log.warning("relaying %s: %s", self._routes.system, error)
            self._failing = True
        except Exception:
            log.exception("relaying %s failed", self._routes.system)
        self._relay.forget()

    async def _work(self, clock: Clock) -> None:
        renewed_at = trimmed_at = float("-inf")
        while True:
            now = clock.monotonic()
            if now - renewed_at >= RENEW_S:
                if not await self._leases.acquire(self._lease.name, self._lease.token, LEASE_S):
                    return
                renewed_at = now
            if self._rolled_back:
                await self._start_generation()
            result = await self._relay_once()
            self._failing = False
            if now - trimmed_at >= TRIM_S:
                await self._relay.trim()
                trimmed_at = now
            if result.drained:
                await self._backoff.wait(found=result.read > 0)

    async def _relay_once(self) -> RelayResult:
        result = await self._relay.relay()
        if result.missing:
            await self._handle_gap(result)
        if result.appended:
            self._observe(ChangesRelayed(self._routes.system, result.appended))
        return result

    async def _handle_gap(self, result: RelayResult) -> None:
        databases = tuple(self._routes.databases())
        reason = f"the logs {', '.join(result.missing)} no longer have the missing entries"
        self._observe(FeedGapFound(self._routes.system, databases, reason))
        await self._start_generation()

    async def _start_generation(self) -> None:
        """Start another generation of the feeds, before anything is appended.

        A server that takes over may have a clock that is behind: its appends could get stream ids
        before positions that subscribers have reached, and they would never see them.
        """
        for database in self._routes.databases():
            await self._feed.start_generation(database)
        self._rolled_back = False

    async def _release(self) -> None:
        try:
            await self._leases.release(self._lease.name, self._lease.token)
        except MediatorError:
            return  # it expires soon
