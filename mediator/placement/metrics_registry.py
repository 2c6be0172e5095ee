"""The metrics registry: metrics of every system by live traffic, for scoring and violations.

It subscribes to observations, so it times the store call and not the HTTP request. Replicas share
them through snapshots: plain JSON, taken and merged by the caller.
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
"""Store calls that wait to be aggregated, at most."""

_KINDS: Mapping[str, tuple[Metric, Metric, Metric]] = {
    "read": (Metric.READ_LATENCY, Metric.READ_THROUGHPUT, Metric.READ_AVAILABILITY),
    "write": (Metric.WRITE_LATENCY, Metric.WRITE_THROUGHPUT, Metric.WRITE_AVAILABILITY),
}


@dataclass(frozen=True)
class History:
    """What was known of a system before: calibrated, or kept from an earlier run."""

    metrics: Mapping[Metric, float] = field(default_factory=dict)
    p99: Mapping[Metric, float] = field(default_factory=dict)

    @cached_property
    def name(self) -> str:
        """Name it by its figures, the same on all replicas."""
        figures = sorted(self.metrics.items()), sorted(self.p99.items())
        return blake2b(repr(figures).encode(), digest_size=8).hexdigest()


class MetricsRegistry:
    EVENTS: ClassVar = frozenset({StoreCallFinished, CircuitChanged})
    """Those that say something about a store's performance."""

    def __init__(self, clock: Clock) -> None:
        self._monotonic = clock.monotonic
        self._series: dict[tuple[str, str, str, str], tuple[Series, SystemSeries]] = {}
        self._lanes: dict[tuple[str, str], SystemSeries] = {}
        self._history: dict[str, History] = {}
        self._peers: tuple[tuple[float, Mapping[str, Any]], ...] = ()
        # Taking up many calls at once costs a fraction: the code and its data are warm then.
        self._waiting: list[tuple[float, StoreCallFinished]] = []

    def observe(self, observation: Observation) -> None:
        """Take up one observation; those that say nothing of a store's performance are ignored."""
        if observation.__class__ is not StoreCallFinished:
            if isinstance(observation, CircuitChanged):
                self._circuit(observation)
            return
        self._waiting.append((self._monotonic(), observation))
        if len(self._waiting) >= MAX_PENDING:
            self._take_up()

    __call__ = observe

    def remember(self, system: str, history: History) -> None:
        """Set what was known of a system before live traffic, from its calibration for one.

        A new calibration begins anew: what was seen before it, here or elsewhere, counts no more.
        """
        if self._history.get(system) == history:
            return
        was_open = {key for key, lane in self._lanes.items() if key[0] == system and lane.open}
        self.forget(system)
        self._history[system] = history
        now = self._monotonic()
        # Their breakers are still open, and an event comes only when they close.
        for key in was_open:
            self._lanes[key] = SystemSeries(now)
            self._lanes[key].open = True

    def forget(self, system: str) -> None:
        self._take_up()
        self._history.pop(system, None)
        self._series = {key: kept for key, kept in self._series.items() if key[0] != system}
        self._lanes = {key: lane for key, lane in self._lanes.items() if key[0] != system}

    def candidate_metrics(self, system: str) -> tuple[dict[Metric, float], dict[Metric, float]]:
        """Return the metrics of a system and its 99th percentiles, as scoring takes them.

        Latency and availability are weighted averages of current and historic values. Throughput
        is capacity: the larger of the historic value and the highest sustained rate, which fades.
        """
        history = self._history.get(system, History())
        metrics: dict[Metric, float | None] = {}
        p99: dict[Metric, float | None] = {}
        for operation, (latency, throughput, availability) in _KINDS.items():
            rows = self._rows("lanes")
            lanes = [r for r in rows if (r["system"], r["operation"]) == (system, operation)]
            mean, covered = pooling.latency(lanes)
            last = pooling.p99(lanes)
            metrics[latency] = pooling.blend(history.metrics.get(latency), mean, covered)
            p99[latency] = pooling.blend(history.p99.get(latency), last, covered)
            metrics[throughput] = pooling.capacity(history.metrics.get(throughput), lanes)
            known = history.metrics.get(availability)
            metrics[availability] = pooling.availability(known, lanes)
        return _known(metrics), _known(p99)

    def statistics(self, system: str) -> list[dict[str, Any]]:
        """Describe every class and operation on a system: seconds, calls, operations/s."""
        rows: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
        for row in self._rows("series"):
            if row["system"] == system:
                key = (system, row["database"], row["class"], row["operation"])
                rows.setdefault(key, []).append(row)
        return [pooling.statistic(key, each) for key, each in sorted(rows.items())]

    def offered(self) -> dict[tuple[str, str], float]:
        """Return the present rate of each (system, operation) in operations/s; never scored."""
        return self._total(lambda row: row["rate"])

    def snapshot(self) -> dict[str, Any]:
        self._forget_faded()
        return {"series": list(self._own_series()), "lanes": list(self._own_lanes())}

    def merge(self, snapshots: Iterable[Mapping[str, Any]]) -> None:
        """Take the newest snapshots of all other replicas in place of earlier ones.

        A snapshot may say for how many seconds it has been known here, as `age_s`: it fades from
        then on by the clock of this replica, and times of two machines are never compared.
        """
        now = self._monotonic()
        self._peers = tuple((now - each.get("age_s", 0.0), each) for each in snapshots)
        # What all replicas sustain together, none of them sees alone.
        for key, rate in self._total(pooling.sustained_rate).items():
            self._lanes.setdefault(key, SystemSeries(now)).raise_peak(rate)

    def _total(self, rate: Callable[[Mapping[str, Any]], float]) -> dict[tuple[str, str], float]:
        """Add up a rate of all replicas, for each (system, operation)."""
        rates: dict[tuple[str, str], float] = {}
        for row in self._rows("lanes"):
            key = (row["system"], row["operation"])
            rates[key] = rates.get(key, 0.0) + rate(row)
        return rates

    def _take_up(self) -> None:
        waiting, self._waiting = self._waiting, []
        for now, call in waiting:
            key = (call.system, call.database, call.class_name, call.operation)
            series, lane = self._series.get(key) or self._opened(key, now)
            ok = call.outcome == "ok"
            lane.add(now, call.count, call.seconds, ok)
            if ok:  # the latency of a failed call is not that of the store
                series.add(now, call.seconds)

    def _opened(self, key: tuple[str, str, str, str], now: float) -> tuple[Series, SystemSeries]:
        lane = self._lanes.setdefault((key[0], key[3]), SystemSeries(now))
        opened = self._series[key] = (Series(now), lane)
        return opened

    def _forget_faded(self) -> None:
        """Forget classes of whose calls nothing is left: some classes are no more."""
        now = self._monotonic()
        for series, _ in self._series.values():
            series.roll(now)
        self._series = {key: kept for key, kept in self._series.items() if not kept[0].has_faded}

    def _circuit(self, change: CircuitChanged) -> None:
        self._take_up()
        now = self._monotonic()
        for (system, _), lane in self._lanes.items():
            if system == change.system:
                # Until now calls have faded by the former state.
                lane.roll(now)
                lane.open = change.open

    def _rows(self, part: str) -> list[Mapping[str, Any]]:
        own = self._own_series() if part == "series" else self._own_lanes()
        return [*own, *self._rows_of_peers(part)]

    def _rows_of_peers(self, part: str) -> Iterator[Mapping[str, Any]]:
        now = self._monotonic()
        for since, snapshot in self._peers:
            for row in snapshot[part]:
                # Another calibration than ours: one of us is about to learn of the newer one.
                if row["calibration"] == self._calibration(row["system"]):
                    yield pooling.aged(row, int(now - since)) if part == "lanes" else row

    def _calibration(self, system: str) -> str:
        """Name the calibration that live figures of a system came after."""
        history = self._history.get(system)
        return "" if history is None else history.name

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
                "calibration": self._calibration(system),
                "calls": series.calls,
                "weight": series.weight,
                "mean": series.mean,
                "m2": series.m2,
                "histogram": series.windows.histogram,
            }

    def _own_lanes(self) -> Iterator[dict[str, Any]]:
        self._take_up()
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


def _known(values: Mapping[Metric, float | None]) -> dict[Metric, float]:
    return {metric: value for metric, value in values.items() if value is not None}
