"""The relays of all systems that keep logs: of each, one is at work among all replicas."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from mediator.base.cancellation import end
from mediator.base.clock import Clock
from mediator.base.errors import MediatorError
from mediator.base.lease import Lease
from mediator.base.observation import (
    ChangesRelayed,
    FeedFellBack,
    FeedGapFound,
    Observation,
    Observer,
    StoreCallFinished,
)
from mediator.changes.feed import Feed, FeedWentBack, LeaseLost
from mediator.changes.idle import Idle
from mediator.changes.relay import LogRelay, Round
from mediator.changes.routes import SystemRoutes
from mediator.stores.guarded import GuardedStore
from mediator.stores.port import ChangeLog, StoreError
from mediator.stores.systems import Systems

__all__ = ["Leasing", "LogRelays"]

log = logging.getLogger(__name__)

LEASE_S: Final = 3.0
RENEW_S: Final = 1.0
TRIM_S: Final = 10.0
PAUSE_S: Final = 0.5


class Leasing(Protocol):
    """Gives leases; see `mediator.coordination.leases.Leases`."""

    async def acquire(self, name: str, token: str, ttl_s: float) -> bool:
        """Take or renew a lease."""

    async def release(self, name: str, token: str) -> None:
        """Give a lease back."""


@dataclass(frozen=True, slots=True)
class _Held:
    store: object
    idle: Idle
    task: asyncio.Task[None]


class LogRelays:
    """Keeps a relay for each system that has logs.

    Args:
        systems: The opened systems.
        feed: The feeds.
        leases: Leases.
        replica: Name of this replica.
        routes: Returns what the routing model says of a system.
        observe: Told of what happens.
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
        self._held: dict[str, _Held] = {}

    async def tend(self) -> None:
        """Begin with systems that are new, end with those that are gone or were opened anew."""
        for name, held in tuple(self._held.items()):
            guarded = self._systems.find(name)
            if guarded is None or guarded.store is not held.store or held.task.done():
                del self._held[name]
                await end([held.task])
        for guarded in tuple(self._systems):
            if guarded.name not in self._held and isinstance(guarded.store, ChangeLog):
                self._begin(guarded, guarded.store)

    async def close(self) -> None:
        """End with all of them."""
        while self._held:
            _, held = self._held.popitem()
            await end([held.task])

    def hear(self, told: Observation) -> None:
        """Nudge the relay of a system that this process has just written to."""
        if isinstance(told, StoreCallFinished) and told.operation == "write":
            held = self._held.get(told.system)
            if held is not None:
                held.idle.nudge()

    def _begin(self, guarded: GuardedStore, store: ChangeLog) -> None:
        idle = Idle()
        lease = Lease(f"relay:{guarded.name}", self._replica)
        routes = self._routes(guarded.name)
        relay = LogRelay(store, self._feed, routes, lease)
        turn = _Turn(relay, lease, idle, self._leases, routes, self._feed, self._observe)
        keeping = turn.keep(self._clock, guarded)
        self._held[guarded.name] = _Held(store, idle, asyncio.create_task(keeping))


class _Turn:
    """One system's relay, at work while its lease is held."""

    def __init__(
        self,
        relay: LogRelay,
        lease: Lease,
        idle: Idle,
        leases: Leasing,
        routes: SystemRoutes,
        feed: Feed,
        observe: Observer,
    ) -> None:
        self._relay = relay
        self._lease = lease
        self._idle = idle
        self._leases = leases
        self._routes = routes
        self._feed = feed
        self._observe = observe
        self._failing = False
        self._fell_back = False

    async def keep(self, clock: Clock, guarded: GuardedStore) -> None:
        """Relay until cancelled, whatever happens."""
        try:
            while True:
                await self._survive(clock, guarded)
                await asyncio.sleep(PAUSE_S)
        finally:
            await self._release()

    async def _survive(self, clock: Clock, guarded: GuardedStore) -> None:
        try:
            if not guarded.breaker.is_open:
                await self._work(clock)
        except LeaseLost:
            log.info("the relay of %s is another replica's now", self._routes.system)
        except FeedWentBack:
            self._observe(FeedFellBack(self._routes.system))
            self._relay.forget(reached=True)
            self._fell_back = True
        except (MediatorError, StoreError) as error:
            if not self._failing:
                log.warning("relaying %s: %s", self._routes.system, error)
            self._failing = True
        except Exception:
            log.exception("relaying %s failed", self._routes.system)
        self._relay.forget()

    async def _work(self, clock: Clock) -> None:
        renewed = trimmed = float("-inf")
        while True:
            now = clock.monotonic()
            if now - renewed >= RENEW_S:
                if not await self._leases.acquire(self._lease.name, self._lease.token, LEASE_S):
                    return
                renewed = now
            if self._fell_back:
                await self._renew()
            done = await self._look()
            self._failing = False
            if now - trimmed >= TRIM_S:
                await self._relay.trim()
                trimmed = now
            if done.drained:
                await self._idle.wait(found=done.read > 0)

    async def _look(self) -> Round:
        done = await self._relay.round()
        if done.missing:
            await self._begin_anew(done)
        if done.appended:
            self._observe(ChangesRelayed(self._routes.system, done.appended))
        return done

    async def _begin_anew(self, done: Round) -> None:
        databases = tuple(self._routes.databases())
        reason = f"the logs {', '.join(done.missing)} no longer have what is missing"
        self._observe(FeedGapFound(self._routes.system, databases, reason))
        await self._renew()

    async def _renew(self) -> None:
        """Begin another life of the feeds, before anything is appended.

        A server that takes over may have a clock that is behind: what it appends could come to
        stand before positions that followers have reached, and they would never see it.
        """
        for database in self._routes.databases():
            await self._feed.renew_incarnation(database)
        self._fell_back = False

    async def _release(self) -> None:
        try:
            await self._leases.release(self._lease.name, self._lease.token)
        except MediatorError:
            return  # it ends by itself soon
