"""The values of scaling advice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

__all__ = ["BAND", "Action", "Sample", "ScalingAdvice", "ScalingSubject", "SystemFigures"]

Action: TypeAlias = Literal["add", "remove", "keep", "unknown"]


class Sample(NamedTuple):
    """A utilisation (1: all that there is) at a time in seconds."""

    at: float
    used: float


@dataclass(frozen=True, slots=True)
class Band:
    """Where utilisation is to stay (docs/papers/wattdb.md, section 2: rules 3 and 4).

    Capacity is to spare if the mean over the window is below `low`, and is to be added if every
    sample of the window is above `high`.
    """

    low: float = 0.3
    high: float = 0.8
    window_s: float = 60.0


BAND = Band()


@dataclass(frozen=True, slots=True)
class ScalingSubject:
    """What advice is about.

    Attributes:
        ahead_s: For how long before it is needed capacity has to be requested.
        growth: By what utilisation is multiplied if the smallest possible part is taken away; None:
            nothing can be.
        more: What adding means, in words.
        less: What taking away means.
    """

    name: str
    ahead_s: float
    growth: float | None
    more: str
    less: str


@dataclass(frozen=True, slots=True)
class SystemFigures:
    """What was measured of a system, by ``read`` and ``write``.

    Attributes:
        rates: Present operations/s.
        capacities: The most operations/s it has sustained, or was calibrated at.
        latencies: Seconds of a call by the moving average.
    """

    rates: Mapping[str, float]
    capacities: Mapping[str, float]
    latencies: Mapping[str, float]

    @property
    def used(self) -> float | None:
        """Utilisation: each operation takes the reciprocal of its capacity of a second.

        Reads and writes share a server, so their shares add up. None if it is not known what the
        server can sustain of something that it does.
        """
        active = {kind: rate for kind, rate in self.rates.items() if rate > 0}
        if not self.capacities or any(not self.capacities.get(kind) for kind in active):
            return None
        return sum(rate / self.capacities[kind] for kind, rate in active.items())

    @property
    def in_flight(self) -> float:
        """Calls under way at a time, by Little's law: rate times latency."""
        return sum(rate * self.latencies.get(kind, 0.0) for kind, rate in self.rates.items())

    @property
    def delay_s(self) -> float | None:
        """Seconds of an operation, reads and writes weighed by their rates; None: not known."""
        active = {kind: rate for kind, rate in self.rates.items() if rate > 0}
        if not active or any(not self.latencies.get(kind) for kind in active):
            return None
        return self.in_flight / sum(active.values())


class ScalingAdvice(NamedTuple):
    """A recommendation, and what led to it.

    Attributes:
        recommendation: What to do.
        why: The reason with its numbers, one sentence.
        utilisation: The mean of the window; None: not known.
        peak: Highest mean of a minute in the history that is kept; None likewise.
        forecast: Utilisation expected once capacity requested now would be there; None: the history
            is too short.
    """

    recommendation: Action
    why: str
    utilisation: float | None = None
    peak: float | None = None
    forecast: float | None = None
