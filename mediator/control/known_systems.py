"""Systems as a replica knows them, and changes of what is stated about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mediator.base.errors import Conflict, Invalid, Location
from mediator.catalogue.registrations import StoredSystem
from mediator.control.findings import Findings, registration_from, registration_to
from mediator.control.port import SystemRegistration
from mediator.stores.port import SystemConfig

__all__ = [
    "KnownSystem",
    "amended",
    "check_acceptable",
    "check_same",
    "configured",
    "is_elsewhere",
    "known_from",
    "not_understood",
    "stored_form",
    "updated",
    "with_statements",
]


@dataclass(frozen=True, slots=True)
class KnownSystem:
    """A registered system; without findings it could not be reached yet."""

    registration: SystemRegistration
    findings: Findings | None = None
    error: str = ""

    @property
    def name(self) -> str:
        """Its name."""
        return self.registration.config.name


def not_understood(config: SystemConfig) -> Invalid:
    """Refuse a URL without the driver's words: they may quote it, and it may hold a password."""
    return Invalid(
        f"There is no store of the kind {config.kind} with such a URL.",
        locations=[Location("/url", f"is no URL of the kind {config.kind}")],
    )


def check_acceptable(known: KnownSystem, findings: Findings) -> None:
    """Refuse a system that cannot hold data."""
    if not findings.acceptable:
        raise Conflict(f"The system {known.name} cannot hold data: {findings.reason}")


def known_from(system: StoredSystem) -> KnownSystem:
    """Return a system as the catalogue keeps it."""
    findings = Findings.from_json(system.findings) if system.findings else None
    return KnownSystem(registration_from(system.registration), findings)


def stored_form(known: KnownSystem) -> StoredSystem:
    """Return a system as the catalogue is to keep it."""
    findings = known.findings.to_json() if known.findings else {}
    return StoredSystem(known.name, registration_to(known.registration), findings)


def amended(
    known: KnownSystem, metrics: Mapping[str, float | None] | None, declared: Sequence[str] | None
) -> KnownSystem:
    """Let the operator state metrics, of which None takes one back, and declare capabilities."""
    registration = known.registration
    if metrics is not None:
        merged = {**(registration.metrics or {}), **metrics}
        stated = {m: figure for m, figure in merged.items() if figure is not None}
        registration = replace(registration, metrics=stated)
    if declared is not None:
        registration = replace(registration, declared=tuple(declared))
    return replace(known, registration=registration)


def with_statements(known: KnownSystem, statements: Mapping[str, Any] | None) -> KnownSystem:
    """Add what an operator said of a system elsewhere; what is stated here holds.

    Nothing was said of a system of this name if it is of another kind.
    """
    registration = known.registration
    if statements is None or statements["kind"] != registration.config.kind:
        return known
    declared = dict.fromkeys((*registration.declared, *statements["declared"]))
    metrics = {**statements["metrics"], **(registration.metrics or {})}
    return amended(known, metrics, tuple(declared))


def configured(registration: SystemRegistration, known: KnownSystem | None) -> KnownSystem:
    """Let the settings say how to reach a system, and keep what the operator said of it since.

    Where its objects are spread cannot change: with other partitions none would be found again.
    """
    if known is None:
        return KnownSystem(registration)
    partitions = known.registration.config.partitions
    kept = replace(
        known.registration,
        config=replace(registration.config, partitions=partitions),
        declared=registration.declared or known.registration.declared,
        metrics=registration.metrics or known.registration.metrics,
    )
    return replace(known, registration=kept)


def is_elsewhere(own: KnownSystem, other: KnownSystem) -> bool:
    """Whether another replica has another address of a system."""
    return own.registration.config != other.registration.config


def check_same(known: KnownSystem, target: KnownSystem) -> None:
    """Refuse a change by which all objects of a system would disappear."""
    old, new = known.registration.config, target.registration.config
    if (old.kind, old.namespace) != (new.kind, new.namespace):
        raise Conflict(f"The system {known.name} cannot become one of another kind or namespace.")


def updated(own: KnownSystem, other: KnownSystem) -> KnownSystem:
    """Take over the registration of another replica; the address stays our own setting."""
    registration = replace(other.registration, config=own.registration.config)
    return replace(own, registration=registration, findings=other.findings or own.findings)
