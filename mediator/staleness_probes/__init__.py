"""Measures how stale reads are on live paths, as an interval (docs/instruments.md)."""

from mediator.staleness_probes.model import (
    Measurement,
    ProbeLimits,
    ProbePlan,
    ProbeRequest,
    read_request,
)
from mediator.staleness_probes.path import PlanePath, ProbePath, Reader, Versions
from mediator.staleness_probes.probe import Probe, Probed
from mediator.staleness_probes.report import StalenessReport
from mediator.staleness_probes.service import CacheReaders, StalenessProbes

__all__ = [
    "CacheReaders",
    "Measurement",
    "PlanePath",
    "Probe",
    "ProbeLimits",
    "ProbePath",
    "ProbePlan",
    "ProbeRequest",
    "Probed",
    "Reader",
    "StalenessProbes",
    "StalenessReport",
    "Versions",
    "read_request",
]
