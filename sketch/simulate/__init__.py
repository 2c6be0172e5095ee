"""Caches over a workload in virtual time: what lifetimes are worth."""

from __future__ import annotations

from sketch.simulate.comparison import Comparison, Question, compare
from sketch.simulate.run import Prepared, Run, simulate
from sketch.simulate.workload import WORKLOADS, Mix, Workload
from sketch.simulate.world import World

__all__ = [
    "WORKLOADS",
    "Comparison",
    "Mix",
    "Prepared",
    "Question",
    "Run",
    "Workload",
    "World",
    "compare",
    "simulate",
]
