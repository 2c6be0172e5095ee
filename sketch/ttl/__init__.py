"""TTLs of answers: estimators, and the port that they implement."""

from __future__ import annotations

from sketch.ttl.adaptive import Constraints
from sketch.ttl.cate import Cate, CateSettings
from sketch.ttl.history import Regret
from sketch.ttl.learner import Learner, LearnerSettings
from sketch.ttl.port import Static, Terms, TtlEstimator, Weights
from sketch.ttl.rates import Memory

__all__ = [
    "Cate",
    "CateSettings",
    "Constraints",
    "Learner",
    "LearnerSettings",
    "Memory",
    "Regret",
    "Static",
    "Terms",
    "TtlEstimator",
    "Weights",
]
