"""The systems: opened, probed, calibrated, remembered, and reopened when they come back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mediator.catalogue.registrations import CatalogueSystems, StoredSystem
from mediator.clock import Clock
from mediator.control.findings import (
    Findings,
    findings_of,
    registration_from,
    registration_to,
)
from mediator.errors import Conflict, Invalid, NotFound, Unavailable
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


@dataclass(frozen=True, slots=True)
class KnownSystem:
    """A registered system; without findings it could not be reached yet."""

    registration: SystemRegistration
    findings: Findings | None = None
    trouble: str = ""

    @property
    def name(self) -> str:
        """Its name."""
        return self.registration.config.name


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
        self._examining = asyncio.Lock()

    def __iter__(self) -> Iterator[KnownSystem]:
        return iter(tuple(self._known.values()))

    def get(self, name: str) -> KnownSystem:
        """Return a system; raises `NotFound`."""
        if name not in self._known:
            raise NotFound(f"There is no system {name}.")
        return self._known[name]

    async def restore(self, configured: Sequence[SystemRegistration]) -> None:
        """Open what the settings name and what was registered before; the settings win.

        A system that does not answer is kept, and tried again by `reconnect`.
        """
        stored = {system.name: system for system in await self._catalogue.load()}
        for system in stored.values():
            self._known[system.name] = _known(system)
        for registration in configured:
            known = self._known.get(registration.config.name)
            self._known[registration.config.name] = _configured(registration, known)
        await asyncio.gather(*(self._connect(name) for name in self._known))

    async def reconnect(self) -> None:
        """Try the systems again that could not be opened so far."""
        closed = [name for name in self._known if self._systems.find(name) is None]
        await asyncio.gather(*(self._connect(name) for name in closed))

    async def register(self, registration: SystemRegistration) -> KnownSystem:
        """Open, probe and calibrate a new system, and keep it.

        Raises:
            Conflict: The name is taken, or the system cannot hold data.
            Unavailable: It does not answer.
        """
        name = registration.config.name
        if name in self._known:
            raise Conflict(f"There is a system {name} already.")
        store = self._make(registration.config)
        try:
            await store.open()
            findings = await self._find_out(store)
        except StoreError as error:
            await store.close()
            raise Unavailable(f"The system {name} does not answer.", system=name) from error
        if not findings.acceptable:
            await store.close()
            raise Conflict(f"The system {name} cannot hold data: {findings.reason}")
        known = KnownSystem(registration, findings)
        await self._keep(known)
        self._put_at_hand(store, findings)
        return known

    async def amend(
        self,
        name: str,
        metrics: Mapping[str, float | None] | None,
        declared: Sequence[str] | None,
    ) -> KnownSystem:
        """Change the operator's word on a system."""
        known = self.get(name)
        registration = known.registration
        if metrics is not None:
            merged = {**(registration.metrics or {}), **metrics}
            stated = {m: figure for m, figure in merged.items() if figure is not None}
            registration = replace(registration, metrics=stated)
        if declared is not None:
            registration = replace(registration, declared=tuple(declared))
        changed = replace(known, registration=registration)
        await self._keep(changed)
        return changed

    async def examine(self, name: str) -> KnownSystem:
        """Probe and calibrate a system anew.

        Raises:
            Unavailable: It does not answer.
        """
        known = self.get(name)
        store = self._systems.get(name).store
        try:
            findings = await self._find_out(store)
        except StoreError as error:
            raise Unavailable(f"The system {name} does not answer.", system=name) from error
        changed = replace(known, findings=findings, trouble="")
        await self._keep(changed)
        return changed

    async def forget(self, name: str) -> None:
        """Close a system and forget it; the caller has made sure that it holds nothing."""
        self.get(name)
        await self._catalogue.remove(name)
        del self._known[name]
        guarded = self._systems.find(name)
        self._systems.remove(name)
        if guarded is not None:
            await guarded.store.close()

    async def close(self) -> None:
        """Close all stores."""
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
        known = self._known[name]
        store = self._make(known.registration.config)
        try:
            await store.open()
            facts = await store.facts()
            findings = known.findings
            # What was found out holds for one version of the server (guarantee 6).
            if findings is None or findings.server != f"{facts.server} {facts.version}":
                findings = await self._find_out(store)
        except StoreError as error:
            self._known[name] = replace(known, trouble=str(error))
            await store.close()
            return
        await self._keep(replace(known, findings=findings, trouble=""))
        self._put_at_hand(store, findings)

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

    async def _keep(self, known: KnownSystem) -> None:
        findings = known.findings.to_json() if known.findings else {}
        form = registration_to(known.registration)
        await self._catalogue.save(StoredSystem(known.name, form, findings))
        self._known[known.name] = known
        if known.findings:
            self._book.remember(known.name, History(known.findings.calibrated, known.findings.p99))

    def _put_at_hand(self, store: Store, findings: Findings) -> None:
        self._systems.add(GuardedStore(store, self._observe, self._clock))
        config = store.config
        self._observe(SystemRegistered(config.name, config.kind, findings.server))

    def _make(self, config: SystemConfig) -> Store:
        try:
            return self._factory(config)
        except ValueError as error:
            raise Invalid(str(error)) from error


def _known(system: StoredSystem) -> KnownSystem:
    findings = Findings.from_json(system.findings) if system.findings else None
    return KnownSystem(registration_from(system.registration), findings)


def _configured(registration: SystemRegistration, known: KnownSystem | None) -> KnownSystem:
    """Let the settings say how to reach a system, and keep what the operator said of it since."""
    if known is None:
        return KnownSystem(registration)
    kept = replace(
        known.registration,
        config=registration.config,
        declared=registration.declared or known.registration.declared,
        metrics=registration.metrics or known.registration.metrics,
    )
    return replace(known, registration=kept)


def _state(guarded: GuardedStore | None) -> str:
    if guarded is None:
        return "not connected"
    return "failing" if guarded.breaker.is_open else "serving"
