"""The metrics book: what live traffic tells of every system, as scoring and violations use it.

It subscribes to observations, so it times the store call and not the HTTP request. Replicas share
what they have seen through snapshots: plain JSON, taken and merged by the caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import Any, ClassVar, Final

from mediator.clock import Clock
from mediator.observation import CircuitChanged, Observation, StoreCallFinished
from mediator.placement.histogram import BUCKETS, percentile, pooled
from mediator.placement.series import Lane, Series
from mediator.schema.annotations import Metric

__all__ = ["HISTORY_CALLS", "History", "MetricsBook"]

MOST_WAITING: Final = 128
"""Store calls that wait to be taken up, at most."""

HISTORY_CALLS: Final = 200
"""History weighs like this many calls: its share is 200 / (200 + calls seen)."""

_KINDS: Mapping[str, tuple[Metric, Metric, Metric]] = {
    "read": (Metric.READ_LATENCY, Metric.READ_THROUGHPUT, Metric.READ_AVAILABILITY),
    "write": (Metric.WRITE_LATENCY, Metric.WRITE_THROUGHPUT, Metric.WRITE_AVAILABILITY),
}


@dataclass(frozen=True)
class History:
    """What was known of a system before: calibrated, or kept from an earlier run."""

    metrics: Mapping[Metric, float] = field(default_factory=dict)
    p99: Mapping[Metric, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Latencies:
    """Latencies of any number of series, of this replica and of others, taken together."""

    calls: int
    weight: float
    mean: float
    m2: float
    histogram: list[int]

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]]) -> _Latencies:
        """Pool rows of snapshots (Chan's parallel form of Welford's method)."""
        weight = sum(row["weight"] for row in rows)
        mean = sum(row["weight"] * row["mean"] for row in rows) / weight if weight else 0.0
        m2 = sum(row["m2"] + row["weight"] * (row["mean"] - mean) ** 2 for row in rows)
        histogram = pooled(_dense(row["histogram"]) for row in rows)
        return cls(sum(row["calls"] for row in rows), weight, mean, m2, histogram)

    @property
    def deviation(self) -> float:
        """Standard deviation in seconds."""
        return sqrt(self.m2 / self.weight) if self.weight else 0.0


class MetricsBook:
    """Statistics per system, class and operation, from observations.

    Args:
        clock: Gives the monotonic time; injectable for tests.
    """

    HEARS: ClassVar = frozenset({StoreCallFinished, CircuitChanged})
    """What says something of a store's performance."""

    def __init__(self, clock: Clock) -> None:
        self._monotonic = clock.monotonic
        self._series: dict[tuple[str, str, str, str], tuple[Series, Lane]] = {}
        self._lanes: dict[tuple[str, str], Lane] = {}
        self._history: dict[str, History] = {}
        self._peers: tuple[Mapping[str, Any], ...] = ()
        # Taking up many calls at once costs a fraction: the code and its data are warm then.
        self._waiting: list[tuple[float, StoreCallFinished]] = []

    def observe(self, observation: Observation) -> None:
        """Take up one observation; those that say nothing of a store's performance are ignored."""
        if observation.__class__ is not StoreCallFinished:
            if isinstance(observation, CircuitChanged):
                self._circuit(observation)
            return
        self._waiting.append((self._monotonic(), observation))
        if len(self._waiting) >= MOST_WAITING:
            self._take_up()

    __call__ = observe

    def remember(self, system: str, history: History) -> None:
        """Set what was known of a system before live traffic, from its calibration for one."""
        self._history[system] = history

    def forget(self, system: str) -> None:
        """Drop everything about a system."""
        self._take_up()
        self._history.pop(system, None)
        self._series = {key: kept for key, kept in self._series.items() if key[0] != system}
        self._lanes = {key: lane for key, lane in self._lanes.items() if key[0] != system}

    def candidate_metrics(
        self, system: str, declared: Mapping[Metric, float] | None = None
    ) -> tuple[dict[Metric, float], dict[Metric, float]]:
        """Return the metrics of a system and its 99th percentiles, as scoring takes them.

        Latency and availability are weighted averages of current and historic values. Throughput
        is capacity: the larger of the historic value and the highest sustained rate, which fades.

        Args:
            system: Name of the system.
            declared: Metrics by the operator's word; they replace measured ones.
        """
        history = self._history.get(system, History())
        metrics: dict[Metric, float | None] = {}
        p99: dict[Metric, float | None] = {}
        for operation, (latency, throughput, availability) in _KINDS.items():
            rows = self._rows("series", system=system, operation=operation)
            seen = _Latencies.of(rows)
            last = percentile(seen.histogram, 0.99)
            mean = seen.mean if seen.calls else None
            metrics[latency] = _blend(history.metrics.get(latency), mean, seen.calls)
            p99[latency] = _blend(history.p99.get(latency), last, seen.calls)
            lanes = self._rows("lanes", system=system, operation=operation)
            metrics[throughput] = _capacity(history.metrics.get(throughput), lanes)
            metrics[availability] = _availability(history.metrics.get(availability), lanes)
        return {**_known(metrics), **(declared or {})}, _known(p99)

    def statistics(self) -> list[dict[str, Any]]:
        """Describe every system, class and operation: seconds, calls, operations/s."""
        rows: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
        for row in self._rows("series"):
            key = (row["system"], row["database"], row["class"], row["operation"])
            rows.setdefault(key, []).append(row)
        return [_statistic(key, _Latencies.of(each)) for key, each in sorted(rows.items())]

    def offered(self) -> dict[tuple[str, str], float]:
        """Return the present rate of each (system, operation) in operations/s; never scored."""
        rates: dict[tuple[str, str], float] = {}
        for row in self._rows("lanes"):
            key = (row["system"], row["operation"])
            rates[key] = rates.get(key, 0.0) + row["rate"]
        return rates

    def snapshot(self) -> dict[str, Any]:
        """Return what this replica has seen, as JSON."""
        return {"series": list(self._own_series()), "lanes": list(self._own_lanes())}

    def merge(self, snapshots: Iterable[Mapping[str, Any]]) -> None:
        """Take the newest snapshots of all other replicas in place of earlier ones."""
        self._peers = tuple(snapshots)
        now = self._monotonic()
        # What all replicas sustain together, none of them sees alone.
        for (system, operation), rate in self.offered().items():
            self._lanes.setdefault((system, operation), Lane(now)).raise_peak(rate)

    def _take_up(self) -> None:
        waiting, self._waiting = self._waiting, []
        for now, call in waiting:
            key = (call.system, call.database, call.class_name, call.operation)
            series, lane = self._series.get(key) or self._opened(key, now)
            ok = call.outcome == "ok"
            lane.add(now, call.count, ok)
            if ok:  # a call that failed tells nothing of how fast the store serves
                series.add(now, call.seconds)

    def _opened(self, key: tuple[str, str, str, str], now: float) -> tuple[Series, Lane]:
        lane = self._lanes.setdefault((key[0], key[3]), Lane(now))
        opened = self._series[key] = (Series(now), lane)
        return opened

    def _circuit(self, change: CircuitChanged) -> None:
        self._take_up()
        now = self._monotonic()
        for (system, _), lane in self._lanes.items():
            if system == change.system:
                lane.roll(now)
                lane.open = change.open

    def _rows(self, part: str, **where: str) -> list[Mapping[str, Any]]:
        own = self._own_series() if part == "series" else self._own_lanes()
        rows = [*own, *(row for peer in self._peers for row in peer[part])]
        return [row for row in rows if all(row[name] == value for name, value in where.items())]

    def _own_series(self) -> Iterator[dict[str, Any]]:
        self._take_up()
        now = self._monotonic()
        for (system, database, class_name, operation), (series, _) in self._series.items():
            series.roll(now)
            yield {
                "system": system,
                "database": database,
                "class": class_name,
                "operation": operation,
                "calls": series.calls,
                "weight": series.weight,
                "mean": series.mean,
                "m2": series.m2,
                "histogram": [[b, n] for b, n in enumerate(series.histogram) if n],
            }

    def _own_lanes(self) -> Iterator[dict[str, Any]]:
        self._take_up()
        now = self._monotonic()
        for (system, operation), lane in self._lanes.items():
            lane.roll(now)
            yield {
                "system": system,
                "operation": operation,
                "calls": lane.calls,
                "ok": lane.ok,
                "all": lane.all,
                "rate": lane.rate,
                "peak": lane.peak,
            }


def _dense(sparse: Iterable[tuple[int, int]]) -> list[int]:
    histogram = [0] * BUCKETS
    for bucket, calls in sparse:
        histogram[bucket] = calls
    return histogram


def _known(values: Mapping[Metric, float | None]) -> dict[Metric, float]:
    return {metric: value for metric, value in values.items() if value is not None}


def _blend(historic: float | None, current: float | None, calls: int) -> float | None:
    if historic is None or current is None:
        return historic if current is None else current
    share = HISTORY_CALLS / (HISTORY_CALLS + calls)
    return share * historic + (1 - share) * current


def _capacity(historic: float | None, lanes: Sequence[Mapping[str, Any]]) -> float | None:
    seen = [row["peak"] for row in lanes if row["peak"] > 0]
    return max(seen if historic is None else [historic, *seen], default=None)


def _availability(historic: float | None, lanes: Sequence[Mapping[str, Any]]) -> float | None:
    tried = sum(row["all"] for row in lanes)
    current = sum(row["ok"] for row in lanes) / tried if tried else None
    return _blend(historic, current, sum(row["calls"] for row in lanes))


def _statistic(key: tuple[str, ...], seen: _Latencies) -> dict[str, Any]:
    system, database, class_name, operation = key
    return {
        "system": system,
        "database": database,
        "class": class_name,
        "operation": operation,
        "calls": seen.calls,
        "mean_s": seen.mean,
        "deviation_s": seen.deviation,
        "p50_s": percentile(seen.histogram, 0.5),
        "p95_s": percentile(seen.histogram, 0.95),
        "p99_s": percentile(seen.histogram, 0.99),
    }
