"""The systems: opened, probed, calibrated, remembered, and reopened when they come back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mediator.catalogue.registrations import CatalogueSystems, StoredSystem
from mediator.clock import Clock
from mediator.control.findings import Findings, findings_of
from mediator.control.known_systems import (
    KnownSystem,
    amended,
    check_acceptable,
    check_same,
    configured,
    is_elsewhere,
    known_from,
    not_understood,
    stored_form,
    updated,
)
from mediator.control.retirement import Retirement
from mediator.errors import Conflict, MediatorError, NotFound, Unavailable
from mediator.observation import Observer, SystemRegistered
from mediator.placement.calibration import calibrate
from mediator.placement.candidates import Candidate
from mediator.placement.metrics import History, MetricsBook
from mediator.planes import SystemRegistration
from mediator.schema.annotations import Capability, Metric
from mediator.stores.guarded import GuardedStore
from mediator.stores.port import Store, StoreError, StoreUnavailable, SystemConfig
from mediator.stores.probe import probe
from mediator.systems import StoreFactory, Systems

__all__ = ["KnownSystem", "Registry"]

log = logging.getLogger(__name__)


class Registry:
    """All registered systems, in the order of their registration.

    Args:
        systems: Where opened stores are put at hand of the data plane.
        catalogue: Where registrations are kept.
        factory: Makes a store of the right kind.
        book: What live traffic measured.
        observe: Told of registrations.
        clock: For the breakers.
    """

    def __init__(
        self,
        systems: Systems,
        catalogue: CatalogueSystems,
        factory: StoreFactory,
        book: MetricsBook,
        observe: Observer,
        clock: Clock,
    ) -> None:
        self._systems = systems
        self._catalogue = catalogue
        self._factory = factory
        self._book = book
        self._observe = observe
        self._clock = clock
        self._known: dict[str, KnownSystem] = {}
        self._registering: set[str] = set()
        self._examining = asyncio.Lock()
        self._keeping = asyncio.Lock()
        self._configured: dict[str, SystemRegistration] = {}
        self._retirement = Retirement()

    def __iter__(self) -> Iterator[KnownSystem]:
        return iter(tuple(self._known.values()))

    def get(self, name: str) -> KnownSystem:
        """Return a system; raises `NotFound`."""
        if name not in self._known:
            raise NotFound(f"There is no system {name}.")
        return self._known[name]

    async def restore(self, registrations: Sequence[SystemRegistration]) -> None:
        """Open what the settings name and what was registered before; the settings win.

        A system that does not answer is kept, and tried again by `reconnect`.
        """
        stored = {system.name: system for system in await self._catalogue.load()}
        for system in stored.values():
            self._known[system.name] = known_from(system)
        for registration in registrations:
            known = self._known.get(registration.config.name)
            self._known[registration.config.name] = configured(registration, known)
            self._configured[registration.config.name] = registration
        opened = await asyncio.gather(*(self._try_to_open(name) for name in self._known))
        for name, found in zip(tuple(self._known), opened, strict=True):
            await self._connected(name, found)

    async def reconfigure(self, registrations: Sequence[SystemRegistration]) -> list[str]:
        """Reach systems as the settings say from now on; return the names of those that changed.

        Calls that are under way end where they were begun; see `Retirement`. A system that is not
        known yet is opened by `reconnect`.

        Raises:
            Conflict: A system would become another one.
            Unavailable: It does not answer there; the one that was at hand stays.
        """
        changed = []
        for registration in registrations:
            name = registration.config.name
            known = self._known.get(name)
            wanted = configured(registration, known)
            self._configured[name] = registration
            if known is None:
                self._known[name] = wanted
            elif wanted.registration.config != known.registration.config:
                await self._move(known, wanted)
            else:
                continue
            changed.append(name)
        return changed

    async def _move(self, known: KnownSystem, wanted: KnownSystem) -> None:
        check_same(known, wanted)
        try:
            store, findings = await self._open(wanted)
        except StoreError as error:
            raise Unavailable(
                f"The system {known.name} does not answer at its new address.", system=known.name
            ) from error
        old = self._systems.find(known.name)
        await self._keep_reached(wanted, findings)
        self._put_at_hand(store, findings)
        if old is not None:
            self._retirement.retire(old.store)

    async def reconnect(self) -> None:
        """Learn what other replicas registered; open what could not be opened so far."""
        for known, told in await self._learn():
            try:
                await self._move(known, told)
            except MediatorError as error:
                log.warning("%s", error.detail)
        closed = [name for name in self._known if self._systems.find(name) is None]
        await asyncio.gather(*(self._connect(name) for name in closed))

    async def register(self, registration: SystemRegistration) -> KnownSystem:
        """Open, probe and calibrate a new system, and keep it.

        Raises:
            Conflict: The name is taken, or the system cannot hold data.
            Invalid: There is no such kind, or no such URL.
            Unavailable: It does not answer.
        """
        name = registration.config.name
        if name in self._known or name in self._registering:
            raise Conflict(f"There is a system {name} already.")
        self._registering.add(name)
        try:
            return await self._register(registration)
        finally:
            self._registering.discard(name)

    async def _register(self, registration: SystemRegistration) -> KnownSystem:
        name = registration.config.name
        store = self._make(registration.config)
        try:
            await store.open()
            findings = await self._find_out(store)
            known = KnownSystem(registration, findings)
            check_acceptable(known, findings)
            await self._keep(known, lambda _: known)
        except BaseException as error:
            await store.close()
            if isinstance(error, StoreError):
                raise Unavailable(f"The system {name} does not answer.", system=name) from error
            if isinstance(error, ValueError):
                raise not_understood(registration.config) from None
            raise
        self._put_at_hand(store, findings)
        return known

    async def amend(
        self,
        name: str,
        metrics: Mapping[str, float | None] | None,
        declared: Sequence[str] | None,
    ) -> KnownSystem:
        """Change the operator's word on a system."""
        return await self._keep(self.get(name), lambda now: amended(now, metrics, declared))

    async def examine(self, name: str) -> KnownSystem:
        """Probe and calibrate a system anew.

        Raises:
            Unavailable: It does not answer.
        """
        self.get(name)
        store = self._systems.get(name).store
        try:
            findings = await self._find_out(store)
        except StoreError as error:
            raise Unavailable(f"The system {name} does not answer.", system=name) from error
        known = self.get(name)
        return await self._keep(known, lambda now: replace(now, findings=findings, trouble=""))

    async def forget(self, name: str) -> None:
        """Close a system and forget it; the caller has made sure that it holds nothing."""
        self.get(name)
        async with self._keeping:
            await self._catalogue.remove(name)
            await self._let_go(name)

    async def close(self) -> None:
        """Close all stores."""
        await self._retirement.close()
        stores = [guarded.store for guarded in self._systems]
        await asyncio.gather(*(store.close() for store in stores))

    def candidates(self) -> list[Candidate]:
        """Return all systems as placement sees them."""
        return [self._candidate(known) for known in self._known.values()]

    def _candidate(self, known: KnownSystem) -> Candidate:
        stated = {Metric(m): figure for m, figure in (known.registration.metrics or {}).items()}
        findings = known.findings
        if findings is None:
            return Candidate(known.name, suspended=f"it could not be examined: {known.trouble}")
        measured, p99 = self._book.candidate_metrics(known.name)
        declared = frozenset(Capability(c) for c in known.registration.declared)
        return Candidate(
            name=known.name,
            capabilities=findings.proven | declared,
            metrics={**measured, **stated},
            p99={**p99, **stated},
            inexact=findings.inexact,
            suspended=None if findings.acceptable else findings.reason,
        )

    def describe(self, known: KnownSystem) -> dict[str, Any]:
        """Describe a system to operators; the URL is left out, it may hold a password."""
        candidate = self._candidate(known)
        guarded = self._systems.find(known.name)
        config = known.registration.config
        return {
            "name": known.name,
            "kind": config.kind,
            "durability": config.durability,
            "state": _state(guarded),
            "trouble": known.trouble,
            "capabilities": sorted(candidate.capabilities),
            "declared": list(known.registration.declared),
            "metrics": {m.value: figure for m, figure in sorted(candidate.metrics.items())},
            "stated_metrics": dict(known.registration.metrics or {}),
            "findings": known.findings.to_json() if known.findings else None,
            "traffic": [row for row in self._book.statistics() if row["system"] == known.name],
        }

    async def _connect(self, name: str) -> None:
        await self._connected(name, await self._try_to_open(name))

    async def _try_to_open(self, name: str) -> tuple[Store, Findings] | StoreError:
        try:
            return await self._open(self._known[name])
        except StoreError as error:
            return error

    async def _connected(self, name: str, opened: tuple[Store, Findings] | StoreError) -> None:
        known = self._known[name]
        if isinstance(opened, StoreError):
            self._known[name] = replace(known, trouble=str(opened))
            return
        store, findings = opened
        await self._keep_reached(known, findings)
        self._put_at_hand(store, findings)

    async def _open(self, known: KnownSystem) -> tuple[Store, Findings]:
        store = self._make(known.registration.config)
        try:
            await store.open()
            facts = await store.facts()
            findings = known.findings
            # What was found out holds for one version of the server (guarantee 6).
            if findings is None or findings.server != f"{facts.server} {facts.version}":
                findings = await self._find_out(store)
        except BaseException:
            await store.close()
            raise
        return store, findings

    async def _learn(self) -> list[tuple[KnownSystem, KnownSystem]]:
        """Take over what other replicas keep in the catalogue.

        Returns:
            Systems that are reached in another way by now, as they were and as they are to be.
            Those that our own settings name are not among them.
        """
        moved = []
        async with self._keeping:
            stored = {system.name: system for system in await self._catalogue.load()}
            for system in stored.values():
                told = known_from(system)
                own = self._known.get(told.name)
                if own and told.name not in self._configured and is_elsewhere(own, told):
                    moved.append((own, replace(told, findings=told.findings or own.findings)))
                self._known[told.name] = updated(own, told) if own else told
                self._remember(self._known[told.name])
            for known in tuple(self._known.values()):
                # One that was never reached is not kept yet.
                if known.findings is not None and known.name not in stored:
                    await self._let_go(known.name)
        return moved

    async def _let_go(self, name: str) -> None:
        self._known.pop(name, None)
        self._book.forget(name)
        guarded = self._systems.find(name)
        self._systems.remove(name)
        if guarded is not None:
            await guarded.store.close()

    async def _find_out(self, store: Store) -> Findings:
        # One at a time: two systems measured at once would measure each other.
        async with self._examining:
            return await self._examine(store)

    async def _examine(self, store: Store) -> Findings:
        report = await probe(store)
        updates = report.verdicts[Capability.CONDITIONAL_UPDATES]
        if report.facts is None or updates.state == "unknown":
            raise StoreUnavailable(f"it could not be probed: {updates.detail}")
        calibration = await calibrate(store) if report.acceptable else None
        return findings_of(report, report.facts, calibration)

    async def _keep_reached(self, known: KnownSystem, findings: Findings) -> None:
        settings = self._configured.get(known.name)

        def reached(now: KnownSystem) -> KnownSystem:
            now = configured(settings, now) if settings else now
            return replace(now, findings=findings, trouble="")

        await self._keep(known, reached)

    async def _keep(
        self, known: KnownSystem, change: Callable[[KnownSystem], KnownSystem]
    ) -> KnownSystem:
        """Change what all replicas know of a system; what others have changed meanwhile holds."""
        changed = known

        def apply(stored: StoredSystem | None) -> StoredSystem:
            nonlocal changed
            changed = change(updated(known, known_from(stored)) if stored else known)
            return stored_form(changed)

        async with self._keeping:
            await self._catalogue.change(known.name, apply)
            self._known[known.name] = changed
            self._remember(changed)
        return changed

    def _remember(self, known: KnownSystem) -> None:
        if known.findings:
            self._book.remember(known.name, History(known.findings.calibrated, known.findings.p99))

    def _put_at_hand(self, store: Store, findings: Findings) -> None:
        self._systems.add(GuardedStore(store, self._observe, self._clock))
        config = store.config
        self._observe(SystemRegistered(config.name, config.kind, findings.server))

    def _make(self, config: SystemConfig) -> Store:
        try:
            return self._factory(config)
        except ValueError:
            raise not_understood(config) from None


def _state(guarded: GuardedStore | None) -> str:
    if guarded is None:
        return "not connected"
    return "failing" if guarded.breaker.is_open else "serving"
