"""Random runs of a cluster: skewed queues, repeated messages, deaths, plan changes, relocations."""

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
"""Results: a query, and the number of the tuple of each relation."""


def workload_of(relations: str, *, with_pair: bool = False) -> Workload:
    """All relations join by their one attribute; with a pair, its join is a query of its own."""
    of = document(dict.fromkeys(relations, "k"))
    of["queries"] = {"all": query(dict.fromkeys(relations, "k"), WINDOW_S)}
    if with_pair:
        of["queries"]["pair"] = query(dict.fromkeys(relations[:2], "k"), WINDOW_S / 2)
    return workload(of)


def drawn_orders(of: Workload, draw: Random) -> JoinOrders:
    return {
        name: draw.sample(sorted(each.relations), len(each.relations))
        for name, each in of.queries.items()
    }


class FaultyCluster(LocalCluster):
    """Messages travel as JSON; who is killed goes on from its record and from the logs."""

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
        """Deliver from a queue; some are slow for the whole run, so splits switch far apart."""
        queues = self.pending()
        if not queues:
            return False
        weights = [
            self._slowness.setdefault(each, self.draw.choice([1, 1, 0.1])) for each in queues
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
        """Deliver once more what a queue has delivered at some time."""
        queues = [each for each, messages in self.delivered.items() if messages]
        if queues:
            queue = self.draw.choice(queues)
            waiting = self._queues[queue]
            self._queues[queue] = deque([self.draw.choice(self.delivered[queue])])
            self.deliver(queue)
            # What was sent meanwhile in this queue, if it is one to oneself, there is none.
            self._queues[queue] = waiting

    def kill(self, address: str) -> None:
        """End a participant: what it has in memory is lost."""
        made: Split | Worker | Manager
        if address == MANAGER:
            record = self._recorded(self.manager)
            self.manager = made = self.cluster.manager()
            made.restore(record)
        elif address in self.splits:
            split = self.splits[address]
            record = self._recorded(split)
            self.splits[address] = made = self.cluster.split(split.relation)
            made.restore(record, self.history[split.relation])
        else:
            record = self._recorded(self.workers[address])
            self.workers[address] = made = self.cluster.worker(address)
            made.restore(record, self.history)

    def _recorded(self, participant: Split | Worker | Manager) -> Any:
        return orjson.loads(orjson.dumps(participant.record()))


class Scenario:
    """One run, by its seed.

    Attributes:
        ended: The relocations, at the end of the run.
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
        orders = {f"worker:{at}": drawn_orders(self.workload, self.draw) for at in range(WORKERS)}
        cluster = make_cluster(self.workload, owners, WORKERS, lateness_s=LATENESS_S, orders=orders)
        self.cluster = FaultyCluster(cluster, self.draw)
        self.faults = faults
        self.strategies = strategies
        self.keys = keys
        self._time_s = 0.0

    def run(self) -> None:
        left = TUPLES
        while left or self.cluster.pending():
            match self.draw.random():
                case at if at < 0.25 and left:
                    self.append()
                    left -= 1
                case at if at < 0.29 and left and self.is_idle:
                    self.cluster.request(self.drawn_request())
                case at if at < 0.305 and self.faults:
                    self.disturb()
                case _:
                    self.cluster.deliver_some()
        self.finish()

    @property
    def is_idle(self) -> bool:
        return self.cluster.manager.present is None and not self.cluster.has_requests

    def append(self) -> None:
        self._time_s += self.draw.expovariate(1.5)
        # Every tenth is a heartbeat; some tuples are late, which must not make a difference.
        jitter_s = self.draw.choice([0, 0, 0, -0.5, -1.5, -4])
        key = self.draw.choice([*range(self.keys), None])
        values = None if self.draw.random() < 0.1 else {"k": key}
        self.cluster.append(self.draw.choice(self.relations), self._time_s + jitter_s, values)

    def drawn_request(self) -> Relocate:
        strategy = self.draw.choice(self.strategies)
        if self.draw.random() < 0.2:
            return Relocate(strategy)
        sender, receiver = self.draw.sample(list(self.cluster.workers), 2)
        return Relocate(strategy, sender, receiver, self.draw.choice([20, 1000]))

    def disturb(self) -> None:
        match self.draw.randrange(4):
            case 0:
                everybody = [MANAGER, *self.cluster.splits, *self.cluster.workers]
                self.cluster.kill(self.draw.choice(everybody))
            case 1:
                self.cluster.repeat()
            case 2:
                worker = self.draw.choice(list(self.cluster.workers.values()))
                worker.states.reshape(drawn_orders(self.workload, self.draw))
            case _:
                if self.draw.random() < 0.04 and (present := self.cluster.manager.present):
                    self.cluster.request(Cancel(present.id))

    def finish(self) -> None:
        """Let time go on until nothing old is left, and everything in the queues is delivered."""
        for _ in range(4):
            self._time_s += WINDOW_S
            for relation in self.relations:
                self.cluster.append(relation, self._time_s, None)
            while self.cluster.deliver_some():
                pass

    @property
    def ended(self) -> Counter[str]:
        relocations = self.cluster.manager.relocations.values()
        return Counter(f"{each.chosen} {each.phase}" for each in relocations)

    def found(self) -> Found:
        return found(self.cluster.results)

    def expected(self) -> Found:
        return batch_join(self.workload, self.cluster.history)

    def check(self) -> None:
        results, expected = self.found(), self.expected()
        assert results == expected, f"missing {expected - results}, too many {results - expected}"
        assert {each.phase for each in self.cluster.manager.relocations.values()} <= ENDED
        owners = Counter(at for each in self.cluster.workers.values() for at in each.holdings)
        assert owners == Counter(range(PARTITIONS))


def found(results: list[Any]) -> Found:
    return Counter(
        (each.query, tuple(sorted((name, of.number) for name, of in each.tuples.items())))
        for each in results
    )


def batch_join(of: Workload, history: Mapping[str, list[LogEntry]], keys: int = KEYS) -> Found:
    """Join all that was logged and not late, without regard to any order."""
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
    for name, each in of.queries.items():
        relations = sorted(each.relations)
        for key in range(keys):
            for some in product(*(by_key.get(at, empty)[key] for at in relations)):
                times = [entry.time_s for entry in some]
                if max(times) - min(times) <= each.window_s:
                    numbers = (entry.number for entry in some)
                    expected[name, tuple(zip(relations, numbers, strict=True))] += 1
    return expected
