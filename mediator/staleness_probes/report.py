"""The summary of a probe, as bounds: measurements are intervals."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from math import ceil, inf
from typing import Final

from mediator.staleness_probes.probe import ProbeResults

__all__ = ["EDGES_S", "Bucket", "StalenessReport", "summary"]

EDGES_S: Final = (0.0, *(m * 10.0**e for e in (-3, -2, -1, 0, 1) for m in (1, 2, 5)), inf)
"""Upper ends of the histogram's buckets: 0, 1, 2, 5 ms, and so on up to 50 s, and beyond."""

SHARES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


@dataclass(frozen=True, slots=True)
class Bucket:
    """The number of bounds up to `le_s` (None: all above) that are in no earlier bucket."""

    le_s: float | None
    lower: int
    upper: int


@dataclass(frozen=True, slots=True)
class StalenessReport:
    """The summary of a probe.

    Attributes:
        unseen: Measurements whose write was not seen in time: their upper bounds are unknown.
        reasons: The reasons of failed measurements.
        bound_s: The bound to check; None: no bound.
        surely_beyond: Share of measurements whose lower bound exceeds it.
        possibly_beyond: Share whose upper bound exceeds it, or is unknown.
        lower_s: Percentiles of the lower bounds, in seconds.
        upper_s: Percentiles of the upper bounds; None where unknown.
        left_behind: Scratch objects that could not be removed.
    """

    path: str
    count: int
    unseen: int
    failures: int
    reasons: tuple[str, ...]
    bound_s: float | None
    surely_beyond: float | None
    possibly_beyond: float | None
    lower_s: dict[str, float | None]
    upper_s: dict[str, float | None]
    histogram: tuple[Bucket, ...]
    left_behind: tuple[str, ...]


def summary(path: str, results: ProbeResults, bound_s: float | None) -> StalenessReport:
    lower = sorted(it.lower_s for it in results.measurements)
    upper = sorted(inf if it.upper_s is None else it.upper_s for it in results.measurements)
    return StalenessReport(
        path=path,
        count=len(lower),
        unseen=sum(it == inf for it in upper),
        failures=results.failures,
        reasons=tuple(results.reasons),
        bound_s=bound_s,
        surely_beyond=_beyond(lower, bound_s),
        possibly_beyond=_beyond(upper, bound_s),
        lower_s=_percentiles(lower),
        upper_s=_percentiles(upper),
        histogram=_histogram(lower, upper),
        left_behind=tuple(results.left_behind),
    )


def _beyond(bounds: list[float], bound_s: float | None) -> float | None:
    if bound_s is None or not bounds:
        return None
    return sum(it > bound_s for it in bounds) / len(bounds)


def _percentiles(bounds: list[float]) -> dict[str, float | None]:
    """Return for each share the smallest bound that is not below that share of all."""
    percentiles = {
        n: bounds[ceil(share * len(bounds)) - 1] if bounds else inf for n, share in SHARES.items()
    }
    return {name: None if bound == inf else bound for name, bound in percentiles.items()}


def _histogram(lower: list[float], upper: list[float]) -> tuple[Bucket, ...]:
    counts = [[0, 0] for _ in EDGES_S]
    for side, bounds in enumerate((lower, upper)):
        for bound in bounds:
            counts[bisect_left(EDGES_S, bound)][side] += 1
    pairs = zip(EDGES_S, counts, strict=True)
    return tuple(Bucket(None if edge == inf else edge, *both) for edge, both in pairs)
