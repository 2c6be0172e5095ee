"""Systems as a replica knows them: findings about them, and operators' statements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic import TypeAdapter

from mediator.base.errors import Conflict, Invalid, Location
from mediator.catalogue.registrations import StoredSystem
from mediator.control.port import SeenStatements, SystemRegistration, SystemUse
from mediator.placement.calibration import Calibration
from mediator.schema.annotations import Capability, Metric
from mediator.schema.types import FieldType
from mediator.stores.port import ServerFacts, SystemConfig
from mediator.stores.probe import CapabilityFinding, ProbeReport

__all__ = [
    "Findings",
    "KnownSystem",
    "adopt_registration",
    "amend_statements",
    "apply_settings",
    "check_same",
    "check_seen",
    "findings_of",
    "known_from",
    "stored_form",
    "unsupported_system",
    "with_statements",
]


@dataclass(frozen=True, slots=True)
class Findings:
    """Probe and calibration of one server version; void for another version.

    Attributes:
        server: Product and version.
        durability_s: Seconds of acknowledged writes that a crash may lose, if known.
        replicas: Connected replicas, if known.
        capabilities: Proven and refuted capabilities, and how.
        inexact: Field types for which the store lacks an exact operator.
        calibrated: Metrics of the synthetic workload.
        p99: 99th percentiles of its latencies.
        claims: Whether it keeps values unique.
        path_indexes: Whether it indexes paths within documents and maps.
        acceptable: Whether the system can hold data; if not, `reason` says why.
    """

    server: str
    durability_s: float | None
    replicas: int | None
    capabilities: Mapping[Capability, CapabilityFinding]
    inexact: frozenset[FieldType]
    calibrated: Mapping[Metric, float]
    p99: Mapping[Metric, float] = field(default_factory=dict)
    claims: bool = True
    path_indexes: bool = False
    acceptable: bool = True
    reason: str = ""
    details: Mapping[str, str] = field(default_factory=dict)

    @property
    def proven(self) -> frozenset[Capability]:
        """The capabilities that were probed or observed."""
        return frozenset(c for c, v in self.capabilities.items() if v.state == "proven")

    def to_json(self) -> dict[str, Any]:
        form: dict[str, Any] = _FINDINGS.dump_python(self, mode="json")
        capabilities = dict(sorted(form["capabilities"].items()))
        return {**form, "capabilities": capabilities, "inexact": sorted(form["inexact"])}


_FINDINGS: Final = TypeAdapter(Findings)


def findings_of(
    report: ProbeReport, facts: ServerFacts, calibration: Calibration | None
) -> Findings:
    return Findings(
        server=f"{facts.server} {facts.version}",
        durability_s=facts.durability_s,
        replicas=facts.replicas,
        capabilities=report.capabilities,
        inexact=report.inexact,
        claims=report.claims,
        path_indexes=report.path_indexes,
        calibrated=calibration.metrics if calibration else {},
        p99=calibration.p99 if calibration else {},
        acceptable=report.acceptable,
        reason=report.reason,
        details=facts.details,
    )


@dataclass(frozen=True, slots=True)
class KnownSystem:
    """A registered system; without findings it has not been reached yet."""

    registration: SystemRegistration
    findings: Findings | None = None
    error: str = ""

    @property
    def name(self) -> str:
        return self.registration.config.name


def unsupported_system(config: SystemConfig) -> Invalid:
    """The error omits the driver's message, which may quote the URL, with a password."""
    return Invalid(
        f"There is no store of the kind {config.kind} with such a URL.",
        locations=[Location("/url", f"is no URL of the kind {config.kind}")],
    )


def known_from(system: StoredSystem) -> KnownSystem:
    form = system.registration
    findings = _FINDINGS.validate_python(system.findings) if system.findings else None
    config, declared = SystemConfig(**form["config"]), tuple(form["declared"])
    use = SystemUse(form["use"])
    return KnownSystem(SystemRegistration(config, declared, dict(form["metrics"]), use), findings)


def stored_form(known: KnownSystem) -> StoredSystem:
    """Return a system as the catalogue stores it, with the URL."""
    config = known.registration.config
    registration = {
        "config": {name: getattr(config, name) for name in SystemConfig.__slots__},
        "declared": list(known.registration.declared),
        "metrics": dict(known.registration.metrics or {}),
        "use": known.registration.use.value,
    }
    findings = known.findings.to_json() if known.findings else {}
    return StoredSystem(known.name, registration, findings)


def amend_statements(
    known: KnownSystem,
    metrics: Mapping[str, float | None] | None,
    declared: Sequence[str] | None,
    use: SystemUse | None = None,
) -> KnownSystem:
    """Change stated metrics, of which None withdraws one, declared capabilities, and the use."""
    registration = known.registration
    if metrics is not None:
        merged = {**(registration.metrics or {}), **metrics}
        stated = {m: figure for m, figure in merged.items() if figure is not None}
        registration = replace(registration, metrics=stated)
    if declared is not None:
        registration = replace(registration, declared=tuple(declared))
    if use is not None:
        registration = replace(registration, use=use)
    return replace(known, registration=registration)


def check_seen(known: KnownSystem, seen: SeenStatements) -> None:
    """Raise `Conflict` if a system's statements have changed since they were seen."""
    declared, use = known.registration.declared, known.registration.use
    if seen.declared is not None and seen.declared != frozenset(declared):
        detail = "The declared capabilities were changed since they were shown."
        raise Conflict(detail, extra={"declared": list(declared)})
    if seen.use not in (None, use):
        detail = "What the system is used for was changed since it was shown."
        raise Conflict(detail, extra={"use": use.value})


def with_statements(known: KnownSystem, statements: Mapping[str, Any] | None) -> KnownSystem:
    """Add an operator's statements from another installation; those made here win.

    They are ignored if they are about a system of another kind.
    """
    registration = known.registration
    if statements is None or statements["kind"] != registration.config.kind:
        return known
    declared = dict.fromkeys((*registration.declared, *statements["declared"]))
    metrics = {**statements["metrics"], **(registration.metrics or {})}
    return amend_statements(known, metrics, tuple(declared))


def apply_settings(registration: SystemRegistration, known: KnownSystem | None) -> KnownSystem:
    """Take the address from the settings, and keep the operator's later statements.

    Raises:
        Conflict: It is the address of another system.
    """
    if known is None:
        return KnownSystem(registration)
    check_same(known.name, known.registration.config, registration.config)
    # With another number of partitions, its objects could not be found.
    partitions = known.registration.config.partitions
    merged = replace(
        known.registration,
        config=replace(registration.config, partitions=partitions),
        declared=registration.declared or known.registration.declared,
        metrics=registration.metrics or known.registration.metrics,
    )
    return replace(known, registration=merged)


def check_same(name: str, old: SystemConfig, new: SystemConfig) -> None:
    """Raise `Conflict` for a change that would make all objects of a system disappear."""
    if (old.kind, old.namespace) != (new.kind, new.namespace):
        raise Conflict(
            f"The system {name} cannot become one of another kind or namespace, which has none of"
            " its objects: give the other one its own name."
        )


def adopt_registration(own: KnownSystem, other: KnownSystem) -> KnownSystem:
    """Take over another replica's registration, but keep the address of our own settings."""
    registration = replace(other.registration, config=own.registration.config)
    return replace(own, registration=registration, findings=other.findings or own.findings)
