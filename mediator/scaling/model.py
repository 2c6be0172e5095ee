"""The values of scaling advice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

__all__ = ["BAND", "Action", "Sample", "ScalingAdvice", "ScalingSubject", "SystemFigures"]

Action: TypeAlias = Literal["add", "remove", "keep", "unknown"]


class Sample(NamedTuple):
    """A utilisation (1: full) at a time in seconds."""

    at: float
    used: float


@dataclass(frozen=True, slots=True)
class Band:
    """The target range of utilisation (docs/papers/wattdb.md, section 2: rules 3 and 4).

    Capacity can be removed if the mean over the window is below `low`, and must be added if every
    sample of the window is above `high`.
    """

    low: float = 0.3
    high: float = 0.8
    window_s: float = 60.0


BAND = Band()


@dataclass(frozen=True, slots=True)
class ScalingSubject:
    """The subject of advice.

    Attributes:
        ahead_s: Lead time of capacity, in seconds.
        growth: Factor of utilisation if the smallest possible part is removed; None: nothing can be
            removed.
        more: How to add capacity, in words.
        less: How to remove capacity, in words.
    """

    name: str
    ahead_s: float
    growth: float | None
    more: str
    less: str


@dataclass(frozen=True, slots=True)
class SystemFigures:
    """Measurements of a system, by ``read`` and ``write``.

    Attributes:
        rates: Current operations/s.
        capacities: Maximum operations/s sustained or calibrated.
        latencies: Moving average of a call's duration, in seconds.
    """

    rates: Mapping[str, float]
    capacities: Mapping[str, float]
    latencies: Mapping[str, float]

    @property
    def used(self) -> float | None:
        """Utilisation: each operation takes a second divided by the capacity of its kind.

        Reads and writes share a server, so their shares add up. None if the capacity of an active
        kind is unknown.
        """
        active = {kind: rate for kind, rate in self.rates.items() if rate > 0}
        if not self.capacities or any(not self.capacities.get(kind) for kind in active):
            return None
        return sum(rate / self.capacities[kind] for kind, rate in active.items())

    @property
    def in_flight(self) -> float:
        """Concurrent calls, by Little's law: rate times latency."""
        return sum(rate * self.latencies.get(kind, 0.0) for kind, rate in self.rates.items())

    @property
    def delay_s(self) -> float | None:
        """Seconds of an operation, reads and writes weighted by their rates; None: unknown."""
        active = {kind: rate for kind, rate in self.rates.items() if rate > 0}
        if not active or any(not self.latencies.get(kind) for kind in active):
            return None
        return self.in_flight / sum(active.values())


class ScalingAdvice(NamedTuple):
    """A recommendation, and its reasons.

    Attributes:
        recommendation: What to do.
        why: The reason with its numbers, one sentence.
        utilisation: The mean of the window; None: unknown.
        peak: Highest mean of a minute in the kept history; None: unknown.
        forecast: Expected utilisation when capacity requested now is available; None: the history
            is too short.
    """

    recommendation: Action
    why: str
    utilisation: float | None = None
    peak: float | None = None
    forecast: float | None = None
