"""For how long an answer should live."""

from __future__ import annotations

from sketch.ttl.port import TtlEstimator
from sketch.ttl.static import Static

__all__ = ["Static", "TtlEstimator"]
