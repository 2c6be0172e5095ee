"""Measures how stale reads are on live paths, as an interval (docs/instruments.md)."""

from mediator.probing.model import Measurement, ProbeLimits, ProbePlan, ProbeRequest, read_request
from mediator.probing.path import PlanePath, ProbePath, Reader, Versions
from mediator.probing.probe import Probe, Probed
from mediator.probing.report import StalenessReport
from mediator.probing.service import CacheReaders, StalenessProbes

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
