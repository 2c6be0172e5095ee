"""The mediator put together: both planes, and what goes on in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from uuid import uuid4

from mediator.catalogue.connection import Catalogue
from mediator.catalogue.events import CatalogueEvents
from mediator.catalogue.redo_log import CatalogueRedoLog
from mediator.catalogue.registrations import CatalogueSystems
from mediator.catalogue.schemas import CatalogueSchemas
from mediator.changes.service import ChangeService
from mediator.clock import Clock, SystemClock
from mediator.control.judgement import Judgement, Patience
from mediator.control.plane import Control
from mediator.control.registry import Registry
from mediator.control.schemas import Schemas
from mediator.control.watch import Duty, Watch
from mediator.coordination.connecting import Coordination
from mediator.coordination.feed import Retention
from mediator.coordination.metrics_exchange import MetricsExchange, NoExchange, RedisExchange
from mediator.guard import NullGuard, WriteGuard
from mediator.materialise.service import MaterialiseService
from mediator.materialise.watermarks import Watermarks
from mediator.observation import Observation, Observer, broadcast
from mediator.operations.calls import StoreCalls
from mediator.operations.executor import Executor
from mediator.operations.expiry import Sweep
from mediator.operations.settling import Settlement
from mediator.operations.split import SplitWriter
from mediator.placement.metrics import MetricsBook
from mediator.planes import SystemRegistration
from mediator.query.budget import Limits
from mediator.stores.port import Reapable
from mediator.systems import StoreFactory, Systems

__all__ = ["Mediator", "MediatorOptions"]

REAPED_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class MediatorOptions:
    """What a mediator is built from.

    Attributes:
        catalogue_url: The PostgreSQL that holds durable metadata.
        coordination_url: The Redis that holds the change feed, and through which replicas share
            metrics; without it there is no feed.
        systems: Systems registered at the start.
        proposal_margin: By what ratio another system must score higher to be proposed.
        proposal_dwell_s: For how many seconds it must do so.
        query_limits: What a query may cost.
        retention: What the change feed keeps.
        guard: Told of every write.
        clock: The time, for everything but the stores.
    """

    catalogue_url: str
    coordination_url: str | None = None
    systems: Sequence[SystemRegistration] = ()
    proposal_margin: float = 0.2
    proposal_dwell_s: float = 60.0
    query_limits: Limits = field(default_factory=Limits)
    retention: Retention = field(default_factory=Retention)
    guard: WriteGuard = field(default_factory=NullGuard)
    clock: Clock = field(default_factory=SystemClock)


class Mediator:
    """Both planes of one replica.

    Args:
        options: What to build.
        factory: Makes a store of each kind.
        observers: Told of everything that happens.
    """

    def __init__(
        self, options: MediatorOptions, factory: StoreFactory, observers: Sequence[Observer]
    ) -> None:
        clock = options.clock
        self._options = options
        self._replica = uuid4().hex
        self._book = MetricsBook(clock)
        observe = broadcast(self._book.observe, self._hear, *observers)
        self._catalogue = Catalogue(options.catalogue_url)
        self._exchange = _exchange(options.coordination_url)
        registrations = CatalogueSystems(self._catalogue)
        systems = Systems()
        self._systems = systems
        self._registry = Registry(systems, registrations, factory, self._book, observe, clock)
        calls = StoreCalls(systems, options.guard, clock)
        self.settlement = Settlement(calls, lambda: self.data.model)
        self._sweep = Sweep(systems, calls.write_guarded, clock)
        split = SplitWriter(calls, CatalogueRedoLog(self._catalogue), observe)
        self._watermarks = Watermarks(clock)
        self.data = Executor(
            calls, split, self._watermarks, self._refresh, options.query_limits, clock
        )
        url = options.coordination_url
        self._coordination = Coordination(url, options.retention) if url else None
        shared = self._coordination
        events = CatalogueEvents(self._catalogue)
        self.primaries = MaterialiseService(
            calls,
            self._watermarks,
            lambda: self.data.model,
            (shared.feed, shared.primary_state, shared.leases) if shared else None,
            events,
            self._replica,
            observe,
            clock,
        )
        self._schemas = Schemas(
            CatalogueSchemas(self._catalogue),
            self._registry,
            systems,
            self.data,
            calls,
            self.primaries,
            observe,
        )
        judgement = Judgement(
            self._registry,
            self.data,
            events,
            Patience(options.proposal_margin, options.proposal_dwell_s),
            observe,
            clock,
        )
        self.control = Control(
            self._catalogue, self._registry, systems, self._schemas, judgement, self.data
        )
        self._secrets = registrations
        self.changes = ChangeService(
            systems,
            lambda: self.data.model,
            self._refresh,
            (shared.feed, shared.leases) if shared else None,
            self._replica,
            observe,
            clock,
        )
        self._watch = Watch(self._duties(judgement))

    def _duties(self, judgement: Judgement) -> list[Duty]:
        return [
            Duty("looking for a newer routing model", 1.0, self._schemas.refresh),
            Duty("rolling writes forward", 1.0, self.data.recover),
            Duty("opening systems", 2.0, self._registry.reconnect),
            Duty("sharing metrics", 5.0, self._share_metrics),
            Duty("judging placements", 5.0, judgement.judge),
            Duty("removing what is past its retention", 60.0, self._reap),
            Duty("removing expired objects", 5.0, self._sweep_expired),
            *self.changes.duties(),
            *self.primaries.duties(),
        ]

    async def start(self) -> None:
        """Open the catalogue and the systems, load the routing model, begin the duties.

        Raises:
            Unavailable: The catalogue does not answer.
        """
        await self._catalogue.open()
        await self._registry.restore(self._options.systems)
        await self._schemas.refresh()
        await self.data.recover()
        self._watch.start()

    async def stop(self) -> None:
        """End the duties and release every connection."""
        await self._watch.stop()
        await self.primaries.close()
        await self.changes.close()
        if self._coordination is not None:
            await self._coordination.close()
        await asyncio.gather(
            self._registry.close(), self._catalogue.close(), self._exchange.close()
        )

    async def secret(self, name: str, proposal: str) -> str:
        """Return a secret that all replicas share."""
        return await self._secrets.secret(name, proposal)

    def _hear(self, told: Observation) -> None:
        self.changes.hear(told)

    async def _refresh(self) -> None:
        await self._schemas.refresh()

    async def _share_metrics(self) -> None:
        await self._exchange.publish(self._replica, self._book.snapshot())
        self._book.merge(await self._exchange.others(self._replica))

    async def _reap(self) -> None:
        for guarded in self._systems:
            if isinstance(guarded.store, Reapable):
                await guarded.guarded(partial(guarded.store.reap, REAPED_AT_ONCE))

    async def _sweep_expired(self) -> None:
        await self._sweep.run(self.data.model)


def _exchange(url: str | None) -> MetricsExchange:
    return RedisExchange(url) if url else NoExchange()
