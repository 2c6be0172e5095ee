"""Random runs of a cluster: skewed queues, repeated messages, kills, plan changes, relocations."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from itertools import product
from random import Random
from typing import Any

import orjson
from pydantic import TypeAdapter

from benchmarks.harness.paced_cluster import Choice, LocalCluster
from mediator.relocation.cluster import Cluster, make_cluster
from mediator.relocation.manager import ENDED, Manager
from mediator.relocation.messages import (
    MANAGER,
    OPERATOR,
    Cancel,
    Message,
    Relocate,
    Routed,
    Strategy,
    Watermark,
)
from mediator.relocation.plans import JoinOrders
from mediator.relocation.split import LogEntry, Split
from mediator.relocation.worker import Worker
from mediator.standing.model import Workload
from tests.unit.standing.papers_queries import document, query, workload

WINDOW_S = 10.0
LATENESS_S = 2.0
KEYS = 5
TUPLES = 120
PARTITIONS = 5
WORKERS = 3

_MESSAGE: TypeAdapter[Message] = TypeAdapter(Message)

Found = Counter[tuple[str, tuple[tuple[str, int], ...]]]
"""Results: a query, and the tuple's number of each relation."""


def workload_of(relations: str, *, with_pair: bool = False) -> Workload:
    """Return a join of all relations by their only attribute; `with_pair` adds a join of two."""
    workload_document = document(dict.fromkeys(relations, "k"))
    workload_document["queries"] = {"all": query(dict.fromkeys(relations, "k"), WINDOW_S)}
    if with_pair:
        workload_document["queries"]["pair"] = query(
            dict.fromkeys(relations[:2], "k"), WINDOW_S / 2
        )
    return workload(workload_document)


def draw_orders(workload_: Workload, draw: Random) -> JoinOrders:
    return {
        name: draw.sample(sorted(query_.relations), len(query_.relations))
        for name, query_ in workload_.queries.items()
    }


class FaultyCluster(LocalCluster):
    """Sends messages as JSON; a killed participant is restored from its record and the logs."""

    def __init__(self, cluster: Cluster, draw: Random) -> None:
        super().__init__(cluster)
        self.cluster = cluster
        self.draw = draw
        self.history: defaultdict[str, list[LogEntry]] = defaultdict(list)
        self.delivered: defaultdict[Choice, list[Message]] = defaultdict(list)
        self._slowness: dict[Choice, float] = {}

    def append(self, relation: str, time_s: float, values: Mapping[str, Any] | None) -> LogEntry:
        entry = super().append(relation, time_s, values)
        self.history[relation].append(entry)
        return entry

    @property
    def has_requests(self) -> bool:
        return bool(self._queues[OPERATOR, MANAGER])

    def deliver_some(self) -> bool:
        """Deliver from a queue; some stay slow, so that splits switch far apart."""
        queues = self.pending()
        if not queues:
            return False
        weights = [
            self._slowness.setdefault(choice, self.draw.choice([1, 1, 0.1])) for choice in queues
        ]
        (queue,) = self.draw.choices(queues, weights)
        if queue[0] != "log":
            message = self._queues[queue][0]
            if not isinstance(message, Routed | Watermark) or self.draw.random() < 0.1:
                message = _MESSAGE.validate_json(_MESSAGE.dump_json(message))
                self._queues[queue][0] = message
            self.delivered[queue].append(message)
        self.deliver(queue)
        return True

    def repeat(self) -> None:
        """Redeliver a message that a queue has delivered before."""
        queues = [choice for choice, messages in self.delivered.items() if messages]
        if queues:
            queue = self.draw.choice(queues)
            pending = self._queues[queue]
            self._queues[queue] = deque([self.draw.choice(self.delivered[queue])])
            self.deliver(queue)
            # No participant sends to itself, so nothing was added to this queue meanwhile.
            self._queues[queue] = pending

    def kill(self, address: str) -> None:
        """Kill a participant: it loses its memory."""
        restored: Split | Worker | Manager
        if address == MANAGER:
            record = self._record_of(self.manager)
            self.manager = restored = self.cluster.manager()
            restored.restore(record)
        elif address in self.splits:
            split = self.splits[address]
            record = self._record_of(split)
            self.splits[address] = restored = self.cluster.split(split.relation)
            restored.restore(record, self.history[split.relation])
        else:
            record = self._record_of(self.workers[address])
            self.workers[address] = restored = self.cluster.worker(address)
            restored.restore(record, self.history)

    def _record_of(self, participant: Split | Worker | Manager) -> Any:
        return orjson.loads(orjson.dumps(participant.record()))


class Scenario:
    """One run, by its seed.

    Attributes:
        ended: The number of relocations by strategy and phase, at the end of the run.
    """

    def __init__(
        self,
        seed: int,
        relations: str = "ABC",
        *,
        faults: bool = True,
        strategies: Sequence[Strategy] = ("ptlb", "mslb", "auto"),
        keys: int = KEYS,
        with_pair: bool = False,
    ) -> None:
        self.draw = Random(seed)
        self.relations = relations
        self.workload = workload_of(relations, with_pair=with_pair)
        owners = [self.draw.randrange(WORKERS) for _ in range(PARTITIONS)]
        orders = {f"worker:{at}": draw_orders(self.workload, self.draw) for at in range(WORKERS)}
        cluster = make_cluster(self.workload, owners, WORKERS, lateness_s=LATENESS_S, orders=orders)
        self.cluster = FaultyCluster(cluster, self.draw)
        self.faults = faults
        self.strategies = strategies
        self.keys = keys
        self._time_s = 0.0

    def run(self) -> None:
        remaining = TUPLES
        while remaining or self.cluster.pending():
            match self.draw.random():
                case chance if chance < 0.25 and remaining:
                    self.append()
                    remaining -= 1
                case chance if chance < 0.29 and remaining and self.is_idle:
                    self.cluster.request(self.draw_request())
                case chance if chance < 0.305 and self.faults:
                    self.disturb()
                case _:
                    self.cluster.deliver_some()
        self.finish()

    @property
    def is_idle(self) -> bool:
        return self.cluster.manager.present is None and not self.cluster.has_requests

    def append(self) -> None:
        self._time_s += self.draw.expovariate(1.5)
        # Every tenth is a heartbeat; some tuples are late, which must not affect the results.
        jitter_s = self.draw.choice([0, 0, 0, -0.5, -1.5, -4])
        key = self.draw.choice([*range(self.keys), None])
        values = None if self.draw.random() < 0.1 else {"k": key}
        self.cluster.append(self.draw.choice(self.relations), self._time_s + jitter_s, values)

    def draw_request(self) -> Relocate:
        strategy = self.draw.choice(self.strategies)
        if self.draw.random() < 0.2:
            return Relocate(strategy)
        sender, receiver = self.draw.sample(list(self.cluster.workers), 2)
        return Relocate(strategy, sender, receiver, self.draw.choice([20, 1000]))

    def disturb(self) -> None:
        match self.draw.randrange(4):
            case 0:
                participants = [MANAGER, *self.cluster.splits, *self.cluster.workers]
                self.cluster.kill(self.draw.choice(participants))
            case 1:
                self.cluster.repeat()
            case 2:
                worker = self.draw.choice(list(self.cluster.workers.values()))
                worker.states.reshape(draw_orders(self.workload, self.draw))
            case _:
                if self.draw.random() < 0.04 and (present := self.cluster.manager.present):
                    self.cluster.request(Cancel(present.id))

    def finish(self) -> None:
        """Advance time until all windows have expired, and deliver all queues."""
        for _ in range(4):
            self._time_s += WINDOW_S
            for relation in self.relations:
                self.cluster.append(relation, self._time_s, None)
            while self.cluster.deliver_some():
                pass

    @property
    def ended(self) -> Counter[str]:
        relocations = self.cluster.manager.relocations.values()
        return Counter(f"{relocation.chosen} {relocation.phase}" for relocation in relocations)

    def found(self) -> Found:
        return found(self.cluster.results)

    def expected(self) -> Found:
        return batch_join(self.workload, self.cluster.history)

    def check(self) -> None:
        results, expected = self.found(), self.expected()
        assert results == expected, f"missing {expected - results}, too many {results - expected}"
        assert {
            participant.phase for participant in self.cluster.manager.relocations.values()
        } <= ENDED
        owners = Counter(
            at for participant in self.cluster.workers.values() for at in participant.holdings
        )
        assert owners == Counter(range(PARTITIONS))


def found(results: list[Any]) -> Found:
    return Counter(
        (result.query, tuple(sorted((name, of.number) for name, of in result.tuples.items())))
        for result in results
    )


def batch_join(
    workload_: Workload, history: Mapping[str, list[LogEntry]], keys: int = KEYS
) -> Found:
    """Join all logged tuples that are not late, regardless of their order."""
    by_key: dict[str, defaultdict[Any, list[LogEntry]]] = {}
    for relation, entries in history.items():
        by_key[relation] = defaultdict(list)
        latest_s = float("-inf")
        for entry in entries:
            key = entry.values["k"] if entry.values else None
            if key is not None and entry.time_s >= latest_s - LATENESS_S:
                by_key[relation][key].append(entry)
            latest_s = max(latest_s, entry.time_s)
    expected: Found = Counter()
    empty: defaultdict[Any, list[LogEntry]] = defaultdict(list)
    for name, query_ in workload_.queries.items():
        relations = sorted(query_.relations)
        for key in range(keys):
            for combination in product(
                *(by_key.get(relation, empty)[key] for relation in relations)
            ):
                times = [entry.time_s for entry in combination]
                if max(times) - min(times) <= query_.window_s:
                    numbers = (entry.number for entry in combination)
                    expected[name, tuple(zip(relations, numbers, strict=True))] += 1
    return expected
