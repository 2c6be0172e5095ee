"""The metrics registry: metrics of every system from live traffic, for scoring and violations.

It subscribes to observations, so it times the store call and not the HTTP request. Replicas share
metrics through snapshots: plain JSON, which the caller takes and merges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Any, ClassVar, Final

from mediator.base.clock import Clock
from mediator.base.observation import CircuitChanged, Observation, StoreCallFinished
from mediator.placement import pooling
from mediator.placement.series import Series, SystemSeries
from mediator.schema.annotations import Metric

__all__ = ["History", "MetricsRegistry"]

MAX_PENDING: Final = 128
"""Maximum number of store calls that wait to be aggregated."""

_KINDS: Mapping[str, tuple[Metric, Metric, Metric]] = {
    "read": (Metric.READ_LATENCY, Metric.READ_THROUGHPUT, Metric.READ_AVAILABILITY),
    "write": (Metric.WRITE_LATENCY, Metric.WRITE_THROUGHPUT, Metric.WRITE_AVAILABILITY),
}


@dataclass(frozen=True)
class History:
    """Former metrics of a system: calibrated, or from an earlier run."""

    metrics: Mapping[Metric, float] = field(default_factory=dict)
    p99: Mapping[Metric, float] = field(default_factory=dict)

    @cached_property
    def name(self) -> str:
        """Return a name derived from its figures, the same on all replicas."""
        figures = sorted(self.metrics.items()), sorted(self.p99.items())
        return blake2b(repr(figures).encode(), digest_size=8).hexdigest()


class MetricsRegistry:
    EVENTS: ClassVar = frozenset({StoreCallFinished, CircuitChanged})
    """Events about a store's performance."""

    def __init__(self, clock: Clock) -> None:
        self._monotonic = clock.monotonic
        self._series: dict[tuple[str, str, str, str], tuple[Series, SystemSeries]] = {}
        self._lanes: dict[tuple[str, str], SystemSeries] = {}
        self._history: dict[str, History] = {}
        self._peers: tuple[tuple[float, Mapping[str, Any]], ...] = ()
        # Adding many calls at once costs a fraction: the code and its data are warm then.
        self._pending: list[tuple[float, StoreCallFinished]] = []

    def observe(self, observation: Observation) -> None:
        """Add one observation, unless it is not about a store's performance."""
        if observation.__class__ is not StoreCallFinished:
            if isinstance(observation, CircuitChanged):
                self._add_circuit_change(observation)
            return
        self._pending.append((self._monotonic(), observation))
        if len(self._pending) >= MAX_PENDING:
            self._add_pending()

    __call__ = observe

    def remember(self, system: str, history: History) -> None:
        """Set the metrics of a system before live traffic, such as those of its calibration.

        A new calibration starts over: earlier observations, here or elsewhere, no longer count.
        """
        if self._history.get(system) == history:
            return
        was_open = {key for key, lane in self._lanes.items() if key[0] == system and lane.open}
        self.forget(system)
        self._history[system] = history
        now = self._monotonic()
        # Their breakers are still open, and the next event comes only when they close.
        for key in was_open:
            self._lanes[key] = SystemSeries(now)
            self._lanes[key].open = True

    def forget(self, system: str) -> None:
        self._add_pending()
        self._history.pop(system, None)
        self._series = {key: pair for key, pair in self._series.items() if key[0] != system}
        self._lanes = {key: lane for key, lane in self._lanes.items() if key[0] != system}

    def candidate_metrics(self, system: str) -> tuple[dict[Metric, float], dict[Metric, float]]:
        """Return the metrics of a system and its 99th percentiles, for scoring.

        Latency and availability are weighted averages of current and historic values. Throughput is
        capacity: the larger of the historic value and the highest sustained rate, which fades.
        """
        history = self._history.get(system, History())
        metrics: dict[Metric, float | None] = {}
        p99: dict[Metric, float | None] = {}
        for operation, (latency, throughput, availability) in _KINDS.items():
            rows = self._rows("lanes")
            lanes = [r for r in rows if (r["system"], r["operation"]) == (system, operation)]
            mean, covered = pooling.latency(lanes)
            percentile = pooling.p99(lanes)
            metrics[latency] = pooling.blend(history.metrics.get(latency), mean, covered)
            p99[latency] = pooling.blend(history.p99.get(latency), percentile, covered)
            metrics[throughput] = pooling.capacity(history.metrics.get(throughput), lanes)
            historic = history.metrics.get(availability)
            metrics[availability] = pooling.availability(historic, lanes)
        return _without_unknown(metrics), _without_unknown(p99)

    def statistics(self, system: str) -> list[dict[str, Any]]:
        """Describe every class and operation on a system: seconds, calls, operations/s."""
        rows: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
        for row in self._rows("series"):
            if row["system"] == system:
                key = (system, row["database"], row["class"], row["operation"])
                rows.setdefault(key, []).append(row)
        return [pooling.statistic(key, key_rows) for key, key_rows in sorted(rows.items())]

    def offered(self) -> dict[tuple[str, str], float]:
        """Return the present rate of each (system, operation) in operations/s; never scored."""
        return self._total(lambda row: row["rate"])

    def snapshot(self) -> dict[str, Any]:
        self._forget_faded()
        return {"series": list(self._own_series()), "lanes": list(self._own_lanes())}

    def merge(self, snapshots: Iterable[Mapping[str, Any]]) -> None:
        """Replace the snapshots of all other replicas by their newest.

        A snapshot can state for how many seconds it has been known here, as `age_s`: it fades from
        then on by the clock of this replica, and times of two machines are never compared.
        """
        now = self._monotonic()
        self._peers = tuple((now - snapshot.get("age_s", 0.0), snapshot) for snapshot in snapshots)
        # No replica sees the rate that all of them sustain together.
        for key, rate in self._total(pooling.sustained_rate).items():
            self._lanes.setdefault(key, SystemSeries(now)).raise_peak(rate)

    def _total(self, rate: Callable[[Mapping[str, Any]], float]) -> dict[tuple[str, str], float]:
        """Sum a rate over all replicas, for each (system, operation)."""
        rates: dict[tuple[str, str], float] = {}
        for row in self._rows("lanes"):
            key = (row["system"], row["operation"])
            rates[key] = rates.get(key, 0.0) + rate(row)
        return rates

    def _add_pending(self) -> None:
        calls, self._pending = self._pending, []
        for now, call in calls:
            key = (call.system, call.database, call.class_name, call.operation)
            series, lane = self._series.get(key) or self._open_series(key, now)
            ok = call.outcome == "ok"
            lane.add(now, call.count, call.seconds, ok)
            if ok:  # the latency of a failed call is not that of the store
                series.add(now, call.seconds)

    def _open_series(
        self, key: tuple[str, str, str, str], now: float
    ) -> tuple[Series, SystemSeries]:
        lane = self._lanes.setdefault((key[0], key[3]), SystemSeries(now))
        pair = self._series[key] = (Series(now), lane)
        return pair

    def _forget_faded(self) -> None:
        """Forget classes whose calls have all faded: some classes no longer exist."""
        now = self._monotonic()
        for series, _ in self._series.values():
            series.roll(now)
        self._series = {key: pair for key, pair in self._series.items() if not pair[0].has_faded}

    def _add_circuit_change(self, change: CircuitChanged) -> None:
        self._add_pending()
        now = self._monotonic()
        for (system, _), lane in self._lanes.items():
            if system == change.system:
                # So far calls have faded by the former state.
                lane.roll(now)
                lane.open = change.open

    def _rows(self, part: str) -> list[Mapping[str, Any]]:
        own = self._own_series() if part == "series" else self._own_lanes()
        return [*own, *self._peer_rows(part)]

    def _peer_rows(self, part: str) -> Iterator[Mapping[str, Any]]:
        now = self._monotonic()
        for since, snapshot in self._peers:
            for row in snapshot[part]:
                # Calibrations differ: one of the replicas is about to get the newer one.
                if row["calibration"] == self._calibration(row["system"]):
                    yield pooling.aged(row, int(now - since)) if part == "lanes" else row

    def _calibration(self, system: str) -> str:
        """Return the name of the calibration that preceded a system's live figures."""
        history = self._history.get(system)
        return "" if history is None else history.name

    def _own_series(self) -> Iterator[dict[str, Any]]:
        self._add_pending()
        now = self._monotonic()
        for (system, database, class_name, operation), (series, _) in self._series.items():
            series.roll(now)
            yield {
                "system": system,
                "database": database,
                "class": class_name,
                "operation": operation,
                "calibration": self._calibration(system),
                "calls": series.calls,
                "weight": series.weight,
                "mean": series.mean,
                "m2": series.m2,
                "histogram": series.windows.histogram,
            }

    def _own_lanes(self) -> Iterator[dict[str, Any]]:
        self._add_pending()
        now = self._monotonic()
        for (system, operation), lane in self._lanes.items():
            lane.roll(now)
            seen, mean = lane.latency
            yield {
                "system": system,
                "operation": operation,
                "calibration": self._calibration(system),
                "seen": seen,
                "mean": mean,
                "ok": lane.ok,
                "all": lane.all,
                "rate": lane.rate,
                "peak": lane.peak,
                "histogram": lane.windows.histogram,
            }


def _without_unknown(values: Mapping[Metric, float | None]) -> dict[Metric, float]:
    return {metric: value for metric, value in values.items() if value is not None}
