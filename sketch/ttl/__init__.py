"""TTLs of answers: estimators, and the port that they implement."""

from __future__ import annotations

from sketch.ttl.adaptive import Constraints
from sketch.ttl.cate import Cate, CateSettings
from sketch.ttl.learner import Learner, LearnerSettings
from sketch.ttl.port import Terms, TtlEstimator, Weights
from sketch.ttl.rates import Memory
from sketch.ttl.regret import Regret
from sketch.ttl.static import Static

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
