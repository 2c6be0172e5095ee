"""What is measured of streams and joins, in the time of the tuples, and smoothed.

A sample is of an interval in which the latest time has moved on. So rates do not depend on how fast
a backlog is drained, and are the same on whichever replica.
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
"""Of the latest sample."""

_ASSUMED_RATE: Final = 1.0
"""Of a stream that was not measured yet, in tuples a second."""

_SHORTEST_S: Final = 1.0
_PER_WINDOW: Final = 4
"""Samples in the longest window, so that a plan follows within one."""

_PAIR: Final = 2


@dataclass(eq=False)
class Sampling:
    """Measured rates, sizes of joins and costs of steps, all per second.

    Attributes:
        rates: By relation.
        sizes: Results of joins.
        sent: Tuples that were sent on the last step of each prefix.
    """

    rates: dict[str, float] = field(default_factory=dict)
    sizes: dict[Join, float] = field(default_factory=dict)
    sent: dict[ProbeOrder, float] = field(default_factory=dict)
    _arrived: Counter[str] = field(default_factory=Counter, init=False)
    _since_s: float | None = field(default=None, init=False)
    _found_before: Counter[ProbeOrder] = field(default_factory=Counter, init=False)
    _sent_before: Counter[ProbeOrder] = field(default_factory=Counter, init=False)

    def count(self, tuples: Iterable[StreamTuple]) -> None:
        """Count tuples that were not late."""
        self._arrived.update(each.stream for each in tuples)

    def restart(self, runtime: Runtime) -> None:
        """Begin an interval, as another plan is active: steps that it does not have are gone."""
        self._begin(runtime)
        self.sent = {}

    def take(self, runtime: Runtime, relations: Iterable[str], window_s: float) -> bool:
        """Take a sample if the interval is long enough; return whether it was."""
        latest_s = runtime.watermark_s
        if self._since_s is None or self._since_s == float("-inf"):
            self._begin(runtime)
            return False
        elapsed_s = latest_s - self._since_s
        if elapsed_s < max(_SHORTEST_S, window_s / _PER_WINDOW):
            return False
        rates = {name: self._arrived[name] / elapsed_s for name in relations}
        self.rates = _smoothed(self.rates, rates)
        found = runtime.found - self._found_before
        self.sizes = _smoothed(
            self.sizes, _sizes(found, runtime.sent - self._sent_before, elapsed_s)
        )
        sent = runtime.sent - self._sent_before
        self.sent = _smoothed(self.sent, {order: n / elapsed_s for order, n in sent.items()})
        self._begin(runtime)
        return True

    def _begin(self, runtime: Runtime) -> None:
        self._since_s = runtime.watermark_s
        self._arrived.clear()
        self._found_before, self._sent_before = runtime.found.copy(), runtime.sent.copy()

    def statistics(self, joins: Iterable[Join]) -> Statistics:
        """Return what is known; of pairs that were not joined yet, a tuple is taken to find one."""
        queries = list(joins)
        relations = {name for each in queries for name in each.relations}
        rates = {name: self.rates.get(name, _ASSUMED_RATE) for name in relations}
        selectivities = {
            predicate: 1.0 / max(_ASSUMED_RATE, *(rates[at.relation] for at in predicate))
            for each in queries
            for predicate in each.predicates
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
        sizes = {Join.from_json(each): each["size"] for each in document["sizes"]}
        return cls(document["rates"], sizes)


def _smoothed(before: Mapping[Any, float], sample: Mapping[Any, float]) -> dict[Any, float]:
    """Return measures with a sample; what is not in it stays as it was."""
    now = {
        name: value if name not in before else before[name] + _WEIGHT * (value - before[name])
        for name, value in sample.items()
    }
    return {**before, **now}


def _sizes(
    found: Mapping[ProbeOrder, int], sent: Mapping[ProbeOrder, int], elapsed_s: float
) -> dict[Join, float]:
    """Return the results of joins a second.

    A result is found once, on the order of the relation that its last tuple is of. Where no order
    of a relation makes the join, its share is taken to be that of the others.
    """
    by_start: defaultdict[Join, dict[str, int]] = defaultdict(dict)
    for order in sent:
        starts = by_start[order.join]
        starts[order.start] = max(starts.get(order.start, 0), found.get(order, 0))
    return {
        join: len(join.relations) / len(starts) * sum(starts.values()) / elapsed_s
        for join, starts in by_start.items()
    }
