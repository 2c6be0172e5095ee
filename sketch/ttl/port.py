"""What says for how long an answer should live."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sketch.port import Part

__all__ = ["TtlEstimator"]


class TtlEstimator(Protocol):
    """Estimates lives; told of every miss and of every write. All times are in seconds."""

    def ttl_s(self, part: Part, keys: Sequence[str], now_s: float) -> float:
        """Return the life of an answer that shows these keys: the shortest of theirs."""

    def missed(self, part: Part, keys: Sequence[str], now_s: float) -> None:
        """Note that an answer that shows these keys came from the origin."""

    def wrote(self, part: Part, keys: Sequence[str], now_s: float) -> None:
        """Note a write to these keys."""
