"""Findings about a system: probed, observed, calibrated, declared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mediator.control.port import SystemRegistration
from mediator.placement.calibration import Calibration
from mediator.schema.annotations import Capability, Metric
from mediator.schema.types import FieldType
from mediator.stores.port import ServerFacts, SystemConfig
from mediator.stores.probe import CapabilityFinding, ProbeReport

__all__ = ["Findings", "findings_of", "registration_from", "registration_to"]


@dataclass(frozen=True, slots=True)
class Findings:
    """Probe and calibration of one server version.

    Attributes:
        server: Product and version; findings about another one are void.
        durability_s: Seconds of acknowledged writes that a crash may lose, if known.
        replicas: Connected replicas, if known.
        capabilities: What was proven or refuted, and how.
        inexact: Field types for which the store lacks an exact operator.
        calibrated: Metrics of the synthetic workload.
        p99: 99th percentiles of its latencies.
        acceptable: Whether the system may hold data; if not, `reason` says why.
    """

    server: str
    durability_s: float | None
    replicas: int | None
    capabilities: Mapping[Capability, CapabilityFinding]
    inexact: frozenset[FieldType]
    calibrated: Mapping[Metric, float]
    p99: Mapping[Metric, float] = field(default_factory=dict)
    acceptable: bool = True
    reason: str = ""
    details: Mapping[str, str] = field(default_factory=dict)

    @property
    def proven(self) -> frozenset[Capability]:
        """Capabilities that were probed or observed to be there."""
        return frozenset(c for c, v in self.capabilities.items() if v.state == "proven")

    def to_json(self) -> dict[str, Any]:
        """Return the form for the catalogue and for operators."""
        return {
            "server": self.server,
            "durability_s": self.durability_s,
            "replicas": self.replicas,
            "capabilities": {
                c.value: {"state": v.state, "how": v.how, "detail": v.detail}
                for c, v in sorted(self.capabilities.items())
            },
            "inexact": sorted(t.value for t in self.inexact),
            "calibrated": {m.value: figure for m, figure in self.calibrated.items()},
            "p99": {m.value: figure for m, figure in self.p99.items()},
            "acceptable": self.acceptable,
            "reason": self.reason,
            "details": dict(self.details),
        }

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> Findings:
        """Read the form of `to_json`."""
        return cls(
            server=form["server"],
            durability_s=form["durability_s"],
            replicas=form["replicas"],
            capabilities={
                Capability(c): CapabilityFinding(**v) for c, v in form["capabilities"].items()
            },
            inexact=frozenset(FieldType(t) for t in form["inexact"]),
            calibrated={Metric(m): figure for m, figure in form["calibrated"].items()},
            p99={Metric(m): figure for m, figure in form["p99"].items()},
            acceptable=form["acceptable"],
            reason=form["reason"],
            details=form["details"],
        )


def findings_of(
    report: ProbeReport, facts: ServerFacts, calibration: Calibration | None
) -> Findings:
    """Join the results of the probe and of the calibration."""
    return Findings(
        server=f"{facts.server} {facts.version}",
        durability_s=facts.durability_s,
        replicas=facts.replicas,
        capabilities=report.capabilities,
        inexact=report.inexact,
        calibrated=calibration.metrics if calibration else {},
        p99=calibration.p99 if calibration else {},
        acceptable=report.acceptable,
        reason=report.reason,
        details=facts.details,
    )


def registration_to(registration: SystemRegistration) -> dict[str, Any]:
    """Return the form of a registration that the catalogue keeps; it holds the URL."""
    config = registration.config
    return {
        "config": {name: getattr(config, name) for name in SystemConfig.__slots__},
        "declared": list(registration.declared),
        "metrics": dict(registration.metrics or {}),
    }


def registration_from(form: Mapping[str, Any]) -> SystemRegistration:
    """Read the form of `registration_to`."""
    return SystemRegistration(
        SystemConfig(**form["config"]), tuple(form["declared"]), dict(form["metrics"])
    )
