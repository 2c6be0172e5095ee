"""For how long an answer should live."""

from __future__ import annotations

from sketch.ttl.cate import Cate, CateSettings
from sketch.ttl.constraints import Constraints
from sketch.ttl.learner import Learner, LearnerSettings
from sketch.ttl.port import Terms, TtlEstimator
from sketch.ttl.rates import Memory
from sketch.ttl.regret import Regret
from sketch.ttl.static import Static
from sketch.ttl.weights import Weights

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
