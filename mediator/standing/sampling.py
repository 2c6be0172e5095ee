"""Smoothed measurements of streams and joins, in event time.

A sample covers an interval of event time, so rates do not depend on how fast a backlog is drained
and are the same on every replica.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from mediator.standing.model import Join, Statistics
from mediator.standing.probe_orders import ProbeOrder
from mediator.standing.runtime import Runtime
from mediator.standing.state import StreamTuple

__all__ = ["Sampling"]

_WEIGHT: Final = 0.5
"""Weight of the latest sample."""

_ASSUMED_RATE: Final = 1.0
"""Rate of a stream that was not measured yet, in tuples a second."""

_MIN_INTERVAL_S: Final = 1.0
_SAMPLES_PER_WINDOW: Final = 4
"""Samples in the longest window, so that a plan adapts within one."""

_PAIR: Final = 2


@dataclass(eq=False)
class Sampling:
    """Measured rates, sizes of joins and costs of steps, all per second.

    Attributes:
        rates: By relation.
        sizes: Results of joins.
        sent: Tuples sent on the last step of each prefix.
    """

    rates: dict[str, float] = field(default_factory=dict)
    sizes: dict[Join, float] = field(default_factory=dict)
    sent: dict[ProbeOrder, float] = field(default_factory=dict)
    _arrived: Counter[str] = field(default_factory=Counter, init=False)
    _since_s: float | None = field(default=None, init=False)
    _results_before: Counter[ProbeOrder] = field(default_factory=Counter, init=False)
    _sent_before: Counter[ProbeOrder] = field(default_factory=Counter, init=False)

    def count(self, tuples: Iterable[StreamTuple]) -> None:
        """Count tuples that were not late."""
        self._arrived.update(item.stream for item in tuples)

    def restart(self, runtime: Runtime) -> None:
        """Start an interval, as a new plan is active, and drop the measured steps."""
        self._start_interval(runtime)
        self.sent = {}

    def take(self, runtime: Runtime, relations: Iterable[str], window_s: float) -> bool:
        """Take a sample if the interval is long enough; return whether it was."""
        latest_s = runtime.watermark_s
        if self._since_s is None or self._since_s == float("-inf"):
            self._start_interval(runtime)
            return False
        elapsed_s = latest_s - self._since_s
        if elapsed_s < max(_MIN_INTERVAL_S, window_s / _SAMPLES_PER_WINDOW):
            return False
        rates = {name: self._arrived[name] / elapsed_s for name in relations}
        self.rates = _smooth(self.rates, rates)
        results = runtime.results - self._results_before
        self.sizes = _smooth(
            self.sizes, _sizes(results, runtime.sent - self._sent_before, elapsed_s)
        )
        sent = runtime.sent - self._sent_before
        self.sent = _smooth(self.sent, {order: n / elapsed_s for order, n in sent.items()})
        self._start_interval(runtime)
        return True

    def _start_interval(self, runtime: Runtime) -> None:
        self._since_s = runtime.watermark_s
        self._arrived.clear()
        self._results_before, self._sent_before = runtime.results.copy(), runtime.sent.copy()

    def statistics(self, joins: Iterable[Join]) -> Statistics:
        """Return the measurements; tuples are assumed to find one partner in unmeasured pairs."""
        queries = list(joins)
        relations = {name for join in queries for name in join.relations}
        rates = {name: self.rates.get(name, _ASSUMED_RATE) for name in relations}
        selectivities = {
            predicate: 1.0 / max(_ASSUMED_RATE, *(rates[at.relation] for at in predicate))
            for join in queries
            for predicate in join.predicates
        }
        for join, size in self.sizes.items():
            pairs = Statistics(rates).size(join) if join.relations <= relations else 0.0
            if len(join.relations) == _PAIR and len(join.predicates) == 1 and pairs:
                [predicate] = join.predicates
                selectivities[predicate] = min(1.0, size / pairs)
        return Statistics(rates, selectivities, dict(self.sizes))

    def to_json(self) -> dict[str, Any]:
        sizes = [{**join.to_json(), "size": size} for join, size in self.sizes.items()]
        return {"rates": self.rates, "sizes": sizes}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        sizes = {Join.from_json(entry): entry["size"] for entry in document["sizes"]}
        return cls(document["rates"], sizes)


def _smooth(former: Mapping[Any, float], sample: Mapping[Any, float]) -> dict[Any, float]:
    """Blend measurements with a sample; values missing from it stay unchanged."""
    blended = {
        name: value if name not in former else former[name] + _WEIGHT * (value - former[name])
        for name, value in sample.items()
    }
    return {**former, **blended}


def _sizes(
    results: Mapping[ProbeOrder, int], sent: Mapping[ProbeOrder, int], elapsed_s: float
) -> dict[Join, float]:
    """Return the results of joins a second.

    Each result is found once, on the order of its last tuple's relation. A relation without an
    order for the join is assumed to have the others' average share.
    """
    by_start: defaultdict[Join, dict[str, int]] = defaultdict(dict)
    for order in sent:
        starts = by_start[order.join]
        starts[order.start] = max(starts.get(order.start, 0), results.get(order, 0))
    return {
        join: len(join.relations) / len(starts) * sum(starts.values()) / elapsed_s
        for join, starts in by_start.items()
    }
