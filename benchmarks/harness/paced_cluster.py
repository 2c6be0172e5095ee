"""A cluster whose workers do so much work in a second of event time, and no more.

The machines are simulated; their states, joins, queues and protocols are the real ones. Work is
rows that are kept or joined, and messages. So figures do not depend on the machine that measures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from mediator.relocation.cluster import Cluster
from mediator.relocation.local import LocalCluster
from mediator.relocation.messages import Routed

__all__ = ["TICK_S", "Arrival", "PacedCluster", "arrivals"]

TICK_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Arrival:
    time_s: float
    relation: str
    key: int


def arrivals(
    phases: Iterable[tuple[float, dict[str, float]]], keys: Sequence[int], draw: Random
) -> Iterator[Arrival]:
    """Draw tuples by Poisson's process; each phase has its end, and rates of relations."""
    began_s = 0.0
    for until_s, rates in phases:
        total = sum(rates.values())
        names, weights = list(rates), list(rates.values())
        time_s = began_s + draw.expovariate(total)
        while time_s < until_s:
            (relation,) = draw.choices(names, weights)
            yield Arrival(time_s, relation, draw.choice(keys))
            time_s += draw.expovariate(total)
        began_s = until_s


class PacedCluster(LocalCluster):
    """Delivers messages while workers have time for them.

    Attributes:
        now_s: Event time.
        delays: After each tick, how old the oldest tuple is that waits for a worker.
        spent: The work of each worker.
    """

    def __init__(self, cluster: Cluster, capacity: float) -> None:
        super().__init__(cluster)
        self._capacity = capacity
        self._budget = dict.fromkeys(self.workers, 0.0)
        self.now_s = 0.0
        self.delays: list[tuple[float, float]] = []
        self.spent: Counter[str] = Counter()

    def tick(self, arriving: Iterable[Arrival]) -> None:
        """Let a tenth of a second pass, in which tuples arrive."""
        for each in arriving:
            self.append(each.relation, each.time_s, {"k": each.key})
        self.now_s += TICK_S
        for split in self.splits.values():
            self.append(split.relation, self.now_s, None)
        for worker in self._budget:
            # Time that is not used is gone; work that took longer is owed.
            self._budget[worker] = min(self._budget[worker], 0.0) + self._capacity * TICK_S
        self._deliver_all()
        self.delays.append((self.now_s, self._delay_s()))

    def _deliver_all(self) -> None:
        while queues := [queue for queue in self.pending() if self._has_time(queue[1])]:
            for queue in queues:
                if self._has_time(queue[1]):
                    self._deliver(queue)

    def _deliver(self, queue: tuple[str, str]) -> None:
        worker = self.workers.get(queue[1])
        if worker is None:
            self.deliver(queue)
            return
        before = worker.states.work
        self.deliver(queue)
        work = 1 + worker.states.work - before
        self._budget[queue[1]] -= work
        self.spent[queue[1]] += work

    def _has_time(self, address: str) -> bool:
        return self._budget.get(address, 1.0) > 0

    def _delay_s(self) -> float:
        oldest = (
            next((each.time_s for each in messages if isinstance(each, Routed)), self.now_s)
            for (_, receiver), messages in self._queues.items()
            if receiver in self.workers
        )
        buffered = (each.time_s for split in self.splits.values() for each in split.buffered[:1])
        return self.now_s - min([*oldest, *buffered, self.now_s])

    def identified(self) -> Counter[Any]:
        """Return what was emitted, by the numbers of its tuples."""
        return Counter(
            (each.query, *sorted((name, of.number) for name, of in each.tuples.items()))
            for each in self.results
        )
