"""The relays of all systems that keep logs: one replica at a time relays each system."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from mediator.base.concurrency import end
from mediator.base.errors import MediatorError
from mediator.base.lease import Lease, LeaseLost, Leasing
from mediator.base.observation import (
    ChangesRelayed,
    FeedGapFound,
    FeedRollbackFound,
    Observation,
    StoreCallFinished,
)
from mediator.changes.feed import Feed, FeedRolledBack
from mediator.changes.log_relay import LogRelay, RelayResult
from mediator.changes.routes import RelayContext
from mediator.stores.guarded import GuardedStore
from mediator.stores.port import ChangeLog, StoreError

__all__ = ["LogRelays"]

log = logging.getLogger(__name__)

MIN_WAIT_S: Final = 0.05
"""Changes are gathered for this long: relaying many costs as much as relaying one."""

MAX_WAIT_S: Final = 0.2
LEASE_S: Final = 3.0
RENEW_S: Final = 1.0
TRIM_S: Final = 10.0
PAUSE_S: Final = 0.5


class IdleBackoff:
    """Waits that double while no changes arrive; a wake-up cuts them short."""

    def __init__(self) -> None:
        self._woken = asyncio.Event()
        self._wait_s = MIN_WAIT_S

    def wake(self) -> None:
        self._woken.set()

    async def wait(self, *, has_changes: bool) -> None:
        self._wait_s = MIN_WAIT_S if has_changes else min(self._wait_s * 2, MAX_WAIT_S)
        # Not cut short: changes that arrive one by one are relayed together.
        await asyncio.sleep(MIN_WAIT_S)
        if self._wait_s > MIN_WAIT_S:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._wait_s - MIN_WAIT_S):
                    await self._woken.wait()
        self._woken.clear()  # the next read sees all changes


@dataclass(eq=False)
class LogRelays:
    _context: RelayContext
    _feed: Feed
    _leases: Leasing
    _running: dict[str, _RelayWorker] = field(default_factory=dict, init=False)

    async def reconcile(self) -> None:
        """Start relays of new systems; cancel relays of removed or reopened systems."""
        for name, running in tuple(self._running.items()):
            guarded = self._context.systems.find(name)
            if guarded is None or guarded.store is not running.store or running.task.done():
                del self._running[name]
                await end([running.task])
        for guarded in tuple(self._context.systems):
            store = guarded.store
            if guarded.name not in self._running and isinstance(store, ChangeLog):
                worker = _RelayWorker(self._context, self._feed, self._leases, guarded, store)
                self._running[guarded.name] = worker

    async def close(self) -> None:
        while self._running:
            _, running = self._running.popitem()
            await end([running.task])

    def on_event(self, event: Observation) -> None:
        """Wake the relay of a system that this process has just written to."""
        if isinstance(event, StoreCallFinished) and event.operation == "write":
            running = self._running.get(event.system)
            if running is not None:
                running.backoff.wake()


class _RelayWorker:
    def __init__(
        self,
        context: RelayContext,
        feed: Feed,
        leases: Leasing,
        guarded: GuardedStore,
        store: ChangeLog,
    ) -> None:
        self.store: object = store
        self.backoff = IdleBackoff()
        self._feed = feed
        self._leases = leases
        self._breaker = guarded.breaker
        self._observe = context.observe
        self._now = context.clock.monotonic
        self._routes = context.routes(guarded.name)
        self._lease = Lease(f"relay:{guarded.name}", context.replica)
        self._relay = LogRelay(store, feed, self._routes, self._lease)
        self._failing = False
        self._rolled_back = False
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            while True:
                await self._attempt()
                await asyncio.sleep(PAUSE_S)
        finally:
            with suppress(MediatorError):  # it expires soon
                await self._leases.release(self._lease.name, self._lease.token)

    async def _attempt(self) -> None:
        try:
            if not self._breaker.is_open:
                await self._work()
        except LeaseLost:
            log.info("lost the lease of the relay of %s", self._routes.system)
        except FeedRolledBack:
            self._observe(FeedRollbackFound(self._routes.system))
            self._relay.forget(reached=True)
            self._rolled_back = True
        except (MediatorError, StoreError) as error:
            if not self._failing:
                log.warning("relaying %s: %s", self._routes.system, error)
            self._failing = True
        except Exception:
            log.exception("relaying %s failed", self._routes.system)
        # Without the lease, another relay may have moved the cursors.
        self._relay.forget()

    async def _work(self) -> None:
        renewed_at = trimmed_at = float("-inf")
        while True:
            now = self._now()
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
                await self.backoff.wait(has_changes=result.read > 0)

    async def _relay_once(self) -> RelayResult:
        result, system = await self._relay.relay(), self._routes.system
        if result.missing:
            databases = tuple(self._routes.databases())
            reason = f"the logs {', '.join(result.missing)} no longer have the missing entries"
            self._observe(FeedGapFound(system, databases, reason))
            await self._start_generation()
        if result.appended:
            self._observe(ChangesRelayed(system, result.appended))
        return result

    async def _start_generation(self) -> None:
        """Start a new generation of all feeds, before anything is appended."""
        # The clock of a server that takes over may be behind: its stream ids could precede
        # positions that subscribers have reached, so that they would never see the changes.
        for database in self._routes.databases():
            await self._feed.start_generation(database)
        self._rolled_back = False
