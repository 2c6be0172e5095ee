"""A cluster in one process: every message goes through a queue, and nothing is shared but these."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Any, TypeAlias

from mediator.relocation.cluster import Cluster
from mediator.relocation.manager import Manager
from mediator.relocation.messages import MANAGER, OPERATOR, Cancel, Message, Relocate
from mediator.relocation.split import BEGINNING_S, LogEntry, Split
from mediator.relocation.worker import Worker

__all__ = ["Choice", "LocalCluster"]

Choice: TypeAlias = tuple[str, str]
"""A queue, by its sender and its receiver; the sender of what a log has is the log."""

_LOG = "log"


class LocalCluster:
    """Delivers messages one by one; any order of the queues is as good.

    Attributes:
        results: What workers have emitted, in the order in which they did.
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
        """Return the queues that have something."""
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
        """Deliver all that there is, queue by queue."""
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
