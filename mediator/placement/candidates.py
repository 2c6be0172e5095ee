"""Candidates: the systems as placement sees them, with capabilities and performance."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mediator.schema.annotations import DURABLE_S, Capability, ContinuousRequirement, Metric
from mediator.schema.types import FieldType

__all__ = ["Candidate", "closure"]

# A stronger consistency level implies every weaker one (docs/papers/ppm.md, table 1).
_IMPLIES: Mapping[Capability, Capability] = {
    Capability.LINEARIZABLE: Capability.CAUSAL,
    Capability.CAUSAL: Capability.MONOTONIC,
    Capability.MONOTONIC: Capability.EVENTUAL,
}


def closure(capabilities: Iterable[Capability]) -> frozenset[Capability]:
    """Add the implied consistency levels."""
    closed = set(capabilities)
    # The strongest comes first, so that the next step finds its addition.
    for stronger, weaker in _IMPLIES.items():
        if stronger in closed:
            closed.add(weaker)
    return frozenset(closed)


@dataclass(frozen=True)
class Candidate:
    """One system as a candidate for placement.

    Attributes:
        capabilities: Its capabilities, with implied consistency levels.
        metrics: Its known metrics: seconds, operations/s, ratios. A missing metric was not
            estimated yet; one that is not finite counts as missing.
        p99: The 99th percentiles, for requirements that name them; in the same units.
        inexact: Field types for which it lacks an exact operator; such fields are not placed here.
        claims: Whether it keeps values unique; otherwise no unique fields are placed here.
        path_indexes: Whether it indexes paths within documents and maps; otherwise no fields with
            indexed paths are placed here.
        durability_s: Seconds of acknowledged writes that a crash may lose; None: unknown.
        suspended: Why it is not a candidate at all, or None.
    """

    name: str
    capabilities: frozenset[Capability] = frozenset()
    metrics: Mapping[Metric, float] = field(default_factory=dict)
    p99: Mapping[Metric, float] = field(default_factory=dict)
    inexact: frozenset[FieldType] = frozenset()
    claims: bool = True
    path_indexes: bool = True
    durability_s: float | None = None
    suspended: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "capabilities", closure(self.capabilities))

    @property
    def loses_s(self) -> float:
        """Seconds of acknowledged writes that a crash may lose, as far as known."""
        if self.durability_s is not None:
            return self.durability_s
        return DURABLE_S if Capability.DURABILITY in self.capabilities else math.inf

    def lacking(self, required: Iterable[Capability]) -> tuple[Capability, ...]:
        """Return the required capabilities it does not have, sorted by name."""
        return tuple(sorted(set(required) - self.capabilities))

    def measured(self, requirement: ContinuousRequirement) -> float | None:
        """Return the statistic that a requirement is about, or None if it is unknown."""
        figures = self.p99 if requirement.statistic == "p99" else self.metrics
        value = figures.get(requirement.metric)
        return value if value is not None and math.isfinite(value) else None
