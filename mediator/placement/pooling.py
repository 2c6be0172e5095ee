"""Pools the statistics of a system's series and replicas, and blends them with history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log, sqrt
from typing import Any, Final

from mediator.placement.series import (
    AVAILABILITY_HALF_LIFE_S,
    CAPACITY_HALF_LIFE_S,
    LATENCY_HALF_LIFE_S,
    SUSTAINED_S,
    faded,
    percentile,
    pooled,
)

__all__ = [
    "aged",
    "availability",
    "blend",
    "capacity",
    "latency",
    "p99",
    "statistic",
    "sustained_rate",
]

HISTORY_CALLS: Final = 200
"""In the availability, history weighs as many calls, against those that have not faded."""

WINDOW_S: Final = LATENCY_HALF_LIFE_S / log(2)
"""Total weight of the seconds of an average over endless traffic. Missing seconds count with the
historic latency: so a burst hardly matters, and silence leads back to history."""


def aged(lane: Mapping[str, Any], seconds: int) -> Mapping[str, Any]:
    """Return the row of another replica's snapshot, aged by some seconds.

    A replica that is silent for longer than the window of a rate has no rate any more: it has
    ended, and other replicas serve its load.
    """
    fade = faded(seconds, AVAILABILITY_HALF_LIFE_S)
    return {
        **lane,
        "age_s": seconds,
        "rate": lane["rate"] if seconds <= SUSTAINED_S else 0.0,
        "seen": lane["seen"] * faded(seconds, LATENCY_HALF_LIFE_S),
        "ok": lane["ok"] * fade,
        "all": lane["all"] * fade,
        "peak": lane["peak"] * faded(seconds, CAPACITY_HALF_LIFE_S),
    }


def sustained_rate(lane: Mapping[str, Any]) -> float:
    """Return the rate that a replica has certainly served, in operations/s over `SUSTAINED_S`.

    It may have ended with its snapshot. Then its load is elsewhere since, and would count twice.
    """
    return float(lane["rate"] * (1 - lane.get("age_s", 0) / SUSTAINED_S))


def latency(lanes: Sequence[Mapping[str, Any]]) -> tuple[float | None, float]:
    """Return the mean latency, and the share of the window with calls."""
    weight = sum(row["seen"] for row in lanes)
    if not weight:
        return None, 0.0
    mean = sum(row["seen"] * row["mean"] for row in lanes) / weight
    # Not their sum: replicas measure the same seconds.
    return mean, min(1.0, max(row["seen"] for row in lanes) / WINDOW_S)


def p99(rows: Sequence[Mapping[str, Any]]) -> float | None:
    return percentile(pooled(row["histogram"] for row in rows), 0.99)


def blend(historic: float | None, current: float | None, share: float) -> float | None:
    if historic is None or current is None:
        return historic if current is None else current
    return (1 - share) * historic + share * current


def capacity(historic: float | None, lanes: Sequence[Mapping[str, Any]]) -> float | None:
    """Return a system's capacity: the highest known rate."""
    peaks = [row["peak"] for row in lanes if row["peak"] > 0]
    return max(peaks if historic is None else [historic, *peaks], default=None)


def availability(historic: float | None, lanes: Sequence[Mapping[str, Any]]) -> float | None:
    calls = sum(row["all"] for row in lanes)
    current = sum(row["ok"] for row in lanes) / calls if calls else None
    return blend(historic, current, calls / (HISTORY_CALLS + calls))


def statistic(key: tuple[str, ...], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Describe a system, class and operation, for operators, over series and replicas."""
    system, database, class_name, operation = key
    # Chan's parallel form of Welford's method.
    weight = sum(row["weight"] for row in rows)
    mean = sum(row["weight"] * row["mean"] for row in rows) / weight if weight else 0.0
    m2 = sum(row["m2"] + row["weight"] * (row["mean"] - mean) ** 2 for row in rows)
    histogram = pooled(row["histogram"] for row in rows)
    return {
        "system": system,
        "database": database,
        "class": class_name,
        "operation": operation,
        "calls": sum(row["calls"] for row in rows),
        "mean_s": mean,
        "deviation_s": sqrt(m2 / weight) if weight else 0.0,
        "p50_s": percentile(histogram, 0.5),
        "p95_s": percentile(histogram, 0.95),
        "p99_s": percentile(histogram, 0.99),
    }
