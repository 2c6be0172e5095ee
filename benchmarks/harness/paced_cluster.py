"""Clusters in one process: every message goes through a queue, and only queues are shared.

The machines are simulated; their states, joins, queues and protocols are the real ones. Those of a
`PacedCluster` do a limited amount of work in a second of event time. Work is rows that are stored
or joined, and messages. So figures do not depend on the machine that measures.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final, TypeAlias

from mediator.relocation.cluster import Cluster
from mediator.relocation.manager import Manager
from mediator.relocation.messages import MANAGER, OPERATOR, Cancel, Message, Relocate, Routed
from mediator.relocation.split import BEGINNING_S, LogEntry, Split
from mediator.relocation.worker import Worker

__all__ = ["TICK_S", "Arrival", "Choice", "LocalCluster", "PacedCluster", "arrivals"]

TICK_S: Final = 0.1

Choice: TypeAlias = tuple[str, str]
"""A queue, by its sender and its receiver; the sender of a log's entries is the log."""

_LOG: Final = "log"


@dataclass(frozen=True, slots=True)
class Arrival:
    time_s: float
    relation: str
    key: int


def arrivals(
    phases: Iterable[tuple[float, dict[str, float]]], keys: Sequence[int], draw: Random
) -> Iterator[Arrival]:
    """Draw tuples of a Poisson process; each phase has its end, and rates of relations."""
    start_s = 0.0
    for until_s, rates in phases:
        total = sum(rates.values())
        names, weights = list(rates), list(rates.values())
        time_s = start_s + draw.expovariate(total)
        while time_s < until_s:
            (relation,) = draw.choices(names, weights)
            yield Arrival(time_s, relation, draw.choice(keys))
            time_s += draw.expovariate(total)
        start_s = until_s


class LocalCluster:
    """Delivers messages one by one; any order of the queues is valid.

    Attributes:
        results: The results that workers have emitted, in order.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._latest_s = dict.fromkeys(cluster.layout.attributes, BEGINNING_S)
        self._numbers = dict.fromkeys(cluster.layout.attributes, 0)
        self._logs: dict[str, deque[LogEntry]] = {name: deque() for name in self._numbers}
        self._queues: defaultdict[Choice, deque[Message]] = defaultdict(deque)
        self.splits: dict[str, Split] = {
            split.address: split for split in map(cluster.split, cluster.layout.attributes)
        }
        self.workers: dict[str, Worker] = {
            address: cluster.worker(address) for address in cluster.layout.workers
        }
        self.manager: Manager = cluster.manager()
        self.results: list[Any] = []

    def append(self, relation: str, time_s: float, values: Mapping[str, Any] | None) -> LogEntry:
        """Log a tuple; without values a heartbeat."""
        self._latest_s[relation] = max(self._latest_s[relation], time_s)
        self._numbers[relation] += 1
        entry = LogEntry(self._numbers[relation], time_s, values, self._latest_s[relation])
        self._logs[relation].append(entry)
        return entry

    def request(self, message: Relocate | Cancel) -> None:
        self._queues[OPERATOR, MANAGER].append(message)

    def pending(self) -> list[Choice]:
        """Return the queues that are not empty."""
        logs = [
            (_LOG, split.address) for split in self.splits.values() if self._logs[split.relation]
        ]
        return [*logs, *(queue for queue, messages in self._queues.items() if messages)]

    def deliver(self, choice: Choice) -> None:
        """Deliver the first message of a queue, or the first entry of a log."""
        sender, receiver = choice
        if sender == _LOG:
            split = self.splits[receiver]
            split.read(self._logs[split.relation].popleft())
            self._send(receiver, split.outbox)
            return
        message = self._queues[choice].popleft()
        participant = self._participant(receiver)
        participant.handle(message)
        self._send(receiver, participant.outbox)
        if isinstance(participant, Worker):
            self.results += participant.results
            participant.results.clear()

    def run(self) -> None:
        """Deliver all messages, queue by queue."""
        while queues := self.pending():
            for queue in queues:
                self.deliver(queue)

    def _participant(self, address: str) -> Split | Worker | Manager:
        if address == MANAGER:
            return self.manager
        return self.splits.get(address) or self.workers[address]

    def _send(self, sender: str, outbox: list[tuple[str, Message]]) -> None:
        for receiver, message in outbox:
            self._queues[sender, receiver].append(message)
        outbox.clear()


class PacedCluster(LocalCluster):
    """Delivers messages while workers have time for them.

    Attributes:
        now_s: Event time.
        delays: After each tick, the age of the oldest tuple that waits for a worker.
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
        """Advance by a tenth of a second, in which tuples arrive."""
        for arrival in arriving:
            self.append(arrival.relation, arrival.time_s, {"k": arrival.key})
        self.now_s += TICK_S
        for split in self.splits.values():
            self.append(split.relation, self.now_s, None)
        for worker in self._budget:
            # Unused time is lost; work that took longer is owed.
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
            next(
                (message.time_s for message in messages if isinstance(message, Routed)), self.now_s
            )
            for (_, receiver), messages in self._queues.items()
            if receiver in self.workers
        )
        buffered = (
            message.time_s for split in self.splits.values() for message in split.buffered[:1]
        )
        return self.now_s - min([*oldest, *buffered, self.now_s])

    def identified(self) -> Counter[Any]:
        """Count the emitted results, by the numbers of their tuples."""
        return Counter(
            (result.query, *sorted((name, tuple_.number) for name, tuple_ in result.tuples.items()))
            for result in self.results
        )
