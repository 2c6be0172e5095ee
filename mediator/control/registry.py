"""The registry of systems: opened, probed, calibrated, stored, and reopened."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from mediator.base.clock import Clock
from mediator.base.errors import Conflict, MediatorError, NotFound, Unavailable
from mediator.base.observation import Observer, SystemRegistered
from mediator.base.suggestions import did_you_mean
from mediator.catalogue.registrations import CatalogueSystems, StoredSystem
from mediator.control.known_systems import (
    Findings,
    KnownSystem,
    adopt_registration,
    apply_settings,
    check_same,
    known_from,
    stored_form,
    with_statements,
)
from mediator.control.opening import Opening, Retirement
from mediator.control.port import SystemRegistration, SystemUse
from mediator.placement.candidates import Candidate
from mediator.placement.metrics_registry import History, MetricsRegistry
from mediator.schema.annotations import Capability, Metric
from mediator.stores.guarded import GuardedStore
from mediator.stores.port import Store, StoreError
from mediator.stores.systems import StoreFactory, Systems

__all__ = ["KnownSystem", "Registry"]

log = logging.getLogger(__name__)

_Opened = tuple[Store, Findings]


class Registry:
    """All registered systems, in the order of their registration."""

    def __init__(
        self,
        systems: Systems,
        catalogue: CatalogueSystems,
        factory: StoreFactory,
        metrics: MetricsRegistry,
        observe: Observer,
        clock: Clock,
    ) -> None:
        self._systems = systems
        self._catalogue = catalogue
        self._opening = Opening(factory)
        self._metrics = metrics
        self._observe = observe
        self._clock = clock
        self._known: dict[str, KnownSystem] = {}
        self._registering: set[str] = set()
        self._storing = asyncio.Lock()
        self._connecting = asyncio.Lock()
        self._configured: dict[str, SystemRegistration] = {}
        self._retirement = Retirement()

    def __iter__(self) -> Iterator[KnownSystem]:
        return iter(tuple(self._known.values()))

    def get(self, name: str) -> KnownSystem:
        if name not in self._known:
            raise _not_found(name, self._known)
        return self._known[name]

    async def restore(self, registrations: Sequence[SystemRegistration]) -> None:
        """Open the systems of the settings and earlier registrations; the settings win.

        A system that does not answer stays registered, and `reconnect` retries it.

        Raises:
            Conflict: The settings would turn a system into another one.
        """
        stored = {system.name: system for system in await self._catalogue.load()}
        for system in stored.values():
            self._known[system.name] = known_from(system)
        for registration in registrations:
            known = self._known.get(registration.config.name)
            self._known[registration.config.name] = apply_settings(registration, known)
            self._configured[registration.config.name] = registration
        systems = tuple(self._known.values())
        opened = await asyncio.gather(*(self._try_to_open(known) for known in systems))
        for known, result in zip(systems, opened, strict=True):
            await self._accept_opened(known, result)

    async def reconfigure(self, registrations: Sequence[SystemRegistration]) -> list[str]:
        """Apply the settings to systems; return the names of changed systems.

        Calls under way end on the former connection; see `Retirement`. `reconnect` opens systems
        that are new.

        Raises:
            Conflict: A system would become another one.
            Unavailable: It does not answer at its new address; the former connection stays.
        """
        async with self._connecting:
            return [r.config.name for r in registrations if await self._reconfigure(r)]

    async def _reconfigure(self, registration: SystemRegistration) -> bool:
        name = registration.config.name
        known = self._known.get(name)
        target = apply_settings(registration, known)
        self._configured[name] = registration
        if known is None:
            self._known[name] = target
            return True
        if target.registration.config == known.registration.config:
            return False
        await self._move(known, target)
        return True

    async def _move(self, known: KnownSystem, target: KnownSystem) -> None:
        opened = await self._try_to_open(target)
        if isinstance(opened, StoreError):
            raise Unavailable(
                f"The system {known.name} does not answer at its new address.", system=known.name
            ) from opened
        await self._accept_store(target, *opened)

    async def reconnect(self) -> None:
        """Load registrations of other replicas; open systems that could not be opened so far."""
        # Not while settings are applied: both would open the same system.
        async with self._connecting:
            for known, target in await self._load_changes():
                try:
                    check_same(known.name, known.registration.config, target.registration.config)
                    await self._move(known, target)
                except MediatorError as error:
                    log.warning("%s", error.detail)
            closed = [known for known in self if self._systems.find(known.name) is None]
            await asyncio.gather(*(self._connect(known) for known in closed))

    async def register(self, registration: SystemRegistration) -> KnownSystem:
        """Open, probe, calibrate and store a new system.

        Raises:
            Conflict: The name is taken, or the system cannot hold data.
            Invalid: There is no such kind, or no such URL.
            Unavailable: It does not answer.
        """
        name = registration.config.name
        if name in self._known or name in self._registering:
            raise _name_taken(name)
        # It is opened, which takes seconds, before the name is in `_known`.
        self._registering.add(name)
        try:
            return await self._register(registration)
        finally:
            self._registering.discard(name)

    async def _register(self, registration: SystemRegistration) -> KnownSystem:
        name = registration.config.name
        try:
            store, findings = await self._opening.open(registration.config)
        except StoreError as error:
            raise Unavailable(f"The system {name} does not answer.", system=name) from error
        known = KnownSystem(registration, findings)

        def accept(_: KnownSystem) -> KnownSystem:
            if not findings.acceptable:
                raise Conflict(f"The system {name} cannot hold data: {findings.reason}")
            return known

        return await self._add(store, known, accept, new=True)

    async def amend(self, name: str, change: Callable[[KnownSystem], KnownSystem]) -> KnownSystem:
        """Change a system as the catalogue has it; if `change` raises, nothing changes."""
        return await self._store(self.get(name), change)

    async def add_statements(self, name: str, statements: Mapping[str, Any]) -> None:
        await self._store(self.get(name), lambda now: with_statements(now, statements))

    async def examine(self, name: str) -> KnownSystem:
        """Probe and calibrate a system again; `Unavailable` if it does not answer."""
        self.get(name)
        store = self._systems.get(name).store
        try:
            findings = await self._opening.examine(store)
        except StoreError as error:
            raise Unavailable(f"The system {name} does not answer.", system=name) from error
        # Read it again: it may have changed while it was examined, which takes seconds.
        known = self.get(name)
        return await self._store(known, lambda now: replace(now, findings=findings, error=""))

    async def forget(self, name: str) -> None:
        """Close and remove a system; `Conflict` if it holds data of a class."""
        self.get(name)
        async with self._storing:
            await self._catalogue.remove(name)
            await self._remove(name)

    async def close(self) -> None:
        await self._retirement.close()
        await asyncio.gather(*(guarded.store.close() for guarded in self._systems))

    def candidates(
        self, statements: Mapping[str, Mapping[str, Any]] | None = None
    ) -> list[Candidate]:
        """Return all systems as candidates, with additional `statements` by system name."""
        added = statements or {}
        known = (with_statements(k, added.get(k.name)) for k in self._known.values())
        return [self._candidate(k) for k in known]

    def _candidate(self, known: KnownSystem) -> Candidate:
        stated = {Metric(m): figure for m, figure in (known.registration.metrics or {}).items()}
        findings = known.findings
        if findings is None:
            return Candidate(known.name, suspended=f"it could not be examined: {known.error}")
        measured, p99 = self._metrics.candidate_metrics(known.name)
        declared = frozenset(Capability(c) for c in known.registration.declared)
        return Candidate(
            name=known.name,
            capabilities=findings.proven | declared,
            metrics={**measured, **stated},
            p99={**p99, **stated},
            inexact=findings.inexact,
            claims=findings.claims,
            path_indexes=findings.path_indexes,
            durability_s=findings.durability_s,
            suspended=_obstacle(known.registration.use, findings),
        )

    def describe(self, known: KnownSystem) -> dict[str, Any]:
        """Describe a system, without its URL, which may hold a password."""
        candidate = self._candidate(known)
        guarded = self._systems.find(known.name)
        config = known.registration.config
        return {
            "name": known.name,
            "kind": config.kind,
            "durability": config.durability,
            "state": _state(guarded),
            "use": known.registration.use.value,
            "error": known.error,
            "capabilities": sorted(candidate.capabilities),
            "declared": list(known.registration.declared),
            "metrics": {m.value: figure for m, figure in sorted(candidate.metrics.items())},
            "stated_metrics": dict(known.registration.metrics or {}),
            "findings": known.findings.to_json() if known.findings else None,
            "traffic": self._metrics.statistics(known.name),
        }

    async def _connect(self, known: KnownSystem) -> None:
        await self._accept_opened(known, await self._try_to_open(known))

    async def _try_to_open(self, known: KnownSystem) -> _Opened | StoreError:
        try:
            return await self._opening.open(known.registration.config, known.findings)
        except StoreError as error:
            return error

    async def _accept_opened(self, known: KnownSystem, opened: _Opened | StoreError) -> None:
        try:
            if isinstance(opened, StoreError):
                self._known[known.name] = replace(self.get(known.name), error=str(opened))
            else:
                await self._accept_store(known, *opened)
        except NotFound:
            log.info("%s was forgotten while it was opened", known.name)

    async def _accept_store(self, known: KnownSystem, store: Store, findings: Findings) -> None:
        settings = self._configured.get(known.name)

        def reached(now: KnownSystem) -> KnownSystem:
            if settings is not None:
                # Keep the address of the open store: the settings may have a newer one.
                now = apply_settings(replace(settings, config=now.registration.config), now)
            return replace(now, findings=findings, error="")

        await self._add(store, known, reached)

    async def _add(
        self,
        store: Store,
        known: KnownSystem,
        change: Callable[[KnownSystem], KnownSystem],
        *,
        new: bool = False,
    ) -> KnownSystem:
        """Store the findings of an open store, and replace the former store by it.

        If its system was forgotten meanwhile, the store is closed.
        """
        guarded = GuardedStore(store, self._observe, self._clock)
        guarded.breaker.suspend(known.registration.use is SystemUse.SUSPENDED)
        try:
            with suppress(StoreError):  # it is read periodically
                await guarded.read_clock()
            stored = await self._store(known, change, new=new)
        except BaseException:
            await store.close()
            raise
        former = self._systems.find(stored.name)
        self._systems.add(guarded)
        # After the replacement: no call finds the former store any more.
        if former is not None:
            self._retirement.retire(former.store)
        server = stored.findings.server if stored.findings else ""
        self._observe(SystemRegistered(stored.name, store.config.kind, server))
        return stored

    async def _load_changes(self) -> list[tuple[KnownSystem, KnownSystem]]:
        """Load the registrations of other replicas from the catalogue.

        Returns the systems with a changed address, before and after, except those that our own
        settings name.
        """
        moved = []
        async with self._storing:
            stored = {system.name: system for system in await self._catalogue.load()}
            for system in stored.values():
                other = known_from(system)
                own = self._known.get(other.name)
                moves = own and own.registration.config != other.registration.config
                if own and moves and other.name not in self._configured:
                    moved.append((own, replace(other, findings=other.findings or own.findings)))
                self._known[other.name] = adopt_registration(own, other) if own else other
                self._remember(self._known[other.name])
            for known in tuple(self._known.values()):
                # A system that was never connected is not stored yet.
                if known.findings is not None and known.name not in stored:
                    await self._remove(known.name)
        return moved

    async def _remove(self, name: str) -> None:
        self._known.pop(name, None)
        self._metrics.forget(name)
        guarded = self._systems.find(name)
        self._systems.remove(name)
        if guarded is not None:
            await guarded.store.close()

    async def _store(
        self, known: KnownSystem, change: Callable[[KnownSystem], KnownSystem], *, new: bool = False
    ) -> KnownSystem:
        """Change a system for all replicas; concurrent changes of others are kept.

        Raises:
            Conflict: It should be new, and another replica has one of this name.
            NotFound: It was forgotten meanwhile, here or by another replica.
        """
        changed = known

        def apply(stored: StoredSystem | None) -> StoredSystem:
            nonlocal changed
            if new and stored is not None:
                raise _name_taken(known.name)
            if stored is None and known.findings is not None and not new:
                raise _not_found(known.name, self._known)
            # Applied to the present row, under its lock: `known` may be older.
            changed = change(adopt_registration(known, known_from(stored)) if stored else known)
            return stored_form(changed)

        async with self._storing:
            # It may have been forgotten while this waited for the lock.
            if not new:
                self.get(known.name)
            await self._catalogue.change(known.name, apply)
            self._known[known.name] = changed
            self._remember(changed)
        return changed

    def _remember(self, known: KnownSystem) -> None:
        if guarded := self._systems.find(known.name):
            guarded.breaker.suspend(known.registration.use is SystemUse.SUSPENDED)
        if findings := known.findings:
            self._metrics.remember(known.name, History(findings.calibrated, findings.p99))


def _not_found(name: str, known: Iterable[str]) -> NotFound:
    return NotFound(f"There is no system {name}{did_you_mean(name, known) or '.'}")


def _name_taken(name: str) -> Conflict:
    return Conflict(f"There is a system {name} already.")


def _obstacle(use: SystemUse, findings: Findings) -> str | None:
    """Return why no data is placed on a system; None if it can be."""
    if not findings.acceptable:
        return findings.reason
    return None if use is SystemUse.FULL else f"its operator has it {use}"


def _state(guarded: GuardedStore | None) -> str:
    if guarded is None:
        return "not connected"
    if guarded.breaker.suspended:
        return "suspended"
    return "failing" if guarded.breaker.is_open else "serving"
