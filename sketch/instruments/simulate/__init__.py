"""Caches over a workload in virtual time: what lifetimes are worth."""

from __future__ import annotations

from sketch.instruments.simulate.comparison import Comparison, Question, compare
from sketch.instruments.simulate.run import Prepared, Run, simulate
from sketch.instruments.simulate.workload import WORKLOADS, Mix, Workload
from sketch.instruments.simulate.world import World

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
