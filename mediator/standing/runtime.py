"""The reference runtime: executes a plan's rules exactly, in one process and in plain Python.

*Earlier* refers to the order of arrival: a tuple joins the tuples that arrived before it, whatever
their times. Times only decide about windows. Each result is therefore made once, by its last
arriving tuple.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mediator.standing.model import Join, stream_store
from mediator.standing.planning import Plan
from mediator.standing.probe_orders import ProbeOrder, StoreLayout
from mediator.standing.rules import Probe, Rules, Store, compile_rules
from mediator.standing.state import JoinedTuple, PlanEpoch, StreamTuple, Task, join_pair, task_of

__all__ = ["Result", "Runtime"]

_EPOCHS: Final = 4
"""Steps in which state is dropped: this many epochs plus one cover a window."""


@dataclass(frozen=True, slots=True)
class Result:
    """A result of a query: a tuple of each of its relations."""

    query: str
    tuples: Mapping[str, StreamTuple]

    def to_json(self) -> dict[str, Any]:
        members = {name: dict(item.values) for name, item in sorted(self.tuples.items())}
        last_s = max(item.time_s for item in self.tuples.values())
        return {"query": self.query, "time_s": last_s, "tuples": members}


class Runtime:
    """Executes plans over batches of tuples.

    Args:
        streams: All are kept for later queries, even if no query reads them yet.
        parallelism: Tasks of a store.
        retention_s: How long tuples are kept, which is the longest window of a query.
        lateness_s: How long after a later tuple of an earlier batch a tuple can still arrive.

    Attributes:
        lateness_s: As passed; it can increase.
        sent: Tuples sent on the last step of each prefix; a broadcast counts once per task.
        results: Results of the last step of each prefix.
        stored: Tuples sent to each layout of a store.
        late: Tuples dropped as late.
    """

    def __init__(
        self, streams: Iterable[str], parallelism: int, retention_s: float, lateness_s: float = 0.0
    ) -> None:
        self._streams = frozenset(streams)
        self._parallelism = parallelism
        self._retention_s = retention_s
        self.lateness_s = lateness_s
        self._latest_s = float("-inf")
        self._rules = Rules({}, {}, {}, {})
        self._epochs: list[PlanEpoch] = []
        self._epoch_from_s = float("-inf")
        self.sent: Counter[ProbeOrder] = Counter()
        self.results: Counter[ProbeOrder] = Counter()
        self.stored: Counter[StoreLayout] = Counter()
        self.late = 0
        self._start_epoch()

    @property
    def latest_s(self) -> float:
        """The latest time of all tuples that were not late; minus infinity: none so far."""
        return self._latest_s

    @property
    def watermark_s(self) -> float:
        """Earlier tuples are late, and tuples that only they could join are dropped."""
        return self._latest_s - self.lateness_s

    def activate(self, plan: Plan) -> None:
        """Start an epoch with a new plan; queries have the full history at once.

        Stored tuples stay in the layout of their epoch's plan. Intermediate results that are no
        longer probed are dropped, newly probed ones are computed.

        Raises:
            ValueError: A query's window is longer than the retention.
        """
        for _ in self.activation(plan):
            pass

    def activation(self, plan: Plan) -> Iterator[None]:
        """Activate a plan step by step; no tuple may be fed before all steps are done."""
        if any(query.window_s > self._retention_s for query in plan.workload.joins):
            raise ValueError("a query has a window longer than the retention")
        former = self._rules.stores
        self._rules = compile_rules(plan)
        for epoch in self._epochs:
            for join in former.keys() - self._rules.stores.keys():
                if len(join.relations) > 1:
                    epoch.tasks.pop(join, None)
        self._start_epoch()
        for join, layouts in self._rules.stores.items():
            if len(join.relations) > 1 and join not in former:
                for item in self._history(join):
                    yield
                    if item is not None:
                        for layout in layouts:
                            self._epochs[-1].add(layout, item)

    def feed(self, batch: Iterable[StreamTuple]) -> list[Result]:
        """Process a batch, in the order of arrival; return its results."""
        return [result for result in self.run(batch) if result is not None]

    def run(self, batch: Iterable[StreamTuple]) -> Iterator[Result | None]:
        """Process a batch step by step, so that other tasks can run; None: a step without result.

        The next tuple is taken from the batch once the previous one is finished.
        """
        watermark_s = self.watermark_s
        self._drop_state(watermark_s)
        for item in batch:
            if item.time_s < watermark_s:
                self.late += 1
                continue
            self._latest_s = max(self._latest_s, item.time_s)
            yield from self._take(item)

    def restore(self, tuples: Iterable[StreamTuple], latest_s: float) -> Iterator[None]:
        """Store tuples that were fed to another runtime, before the first plan is active.

        Args:
            latest_s: The latest time of all tuples fed to it.
        """
        for item in tuples:
            self._keep(self._layouts(stream_store(item.stream))[0], JoinedTuple.of(item))
            yield
        self._latest_s = max(self._latest_s, latest_s)

    def sizes(self) -> dict[StoreLayout, int]:
        """Return how many tuples each layout of a store holds."""
        counts: Counter[StoreLayout] = Counter()
        for epoch in self._epochs:
            for layouts in epoch.tasks.values():
                for layout, tasks in layouts.items():
                    counts[layout] += sum(len(task.tuples) for task in tasks)
        return dict(counts)

    def _take(self, item: StreamTuple) -> Iterator[Result | None]:
        joined_tuple = JoinedTuple.of(item)
        inputs = self._rules.inputs.get(item.stream)
        if inputs is None:
            self._keep(self._layouts(stream_store(item.stream))[0], joined_tuple)
            return
        for label in inputs:
            yield from self._handle(label, joined_tuple)

    def _handle(self, label: int, item: JoinedTuple) -> Iterator[Result | None]:
        """Apply the rules of an edge to a tuple that arrives on it (algorithm 3)."""
        target = self._rules.edges[label].target
        for rule in self._rules.by_edge[label]:
            match rule:
                case Store():
                    self._keep(target, item)
                case Probe():
                    for result in self._probe(rule, item):
                        yield None
                        if result is None:
                            continue
                        yield from (Result(query, result.tuples) for query in rule.queries)
                        for out in rule.out:
                            yield from self._handle(out, result)

    def _keep(self, layout: StoreLayout, item: JoinedTuple) -> None:
        self.stored[layout] += 1
        self._epochs[-1].add(layout, item)

    def _probe(self, rule: Probe, item: JoinedTuple) -> Iterator[JoinedTuple | None]:
        """Probe each epoch that the window reaches, by one of its layouts (algorithm 4).

        Yields the join of a tuple with each of its partners; None: they are too far apart. Handling
        a result changes only larger stores, not the probed one.
        """
        target, window_s = rule.order.steps[-1], rule.order.join.window_s
        tasks: dict[tuple[StoreLayout, int], list[Task]] = {}
        for epoch in self._epochs:
            layouts = epoch.tasks.get(target.join)
            # Compared as in `join_pair`: differences are rounded, and may lie on the end of a
            # window.
            if layouts and item.last_s - epoch.newest_s <= window_s:
                # An epoch may lack the layout of the current plan, and have several others.
                receivers = {layout: self._receivers(rule, layout, item) for layout in layouts}
                layout = min(
                    receivers,
                    key=lambda candidate: (len(receivers[candidate]), candidate != target),
                )
                for number in receivers[layout]:
                    tasks.setdefault((layout, number), []).append(layouts[layout][number])
        # A task has the containers of all epochs, so it gets the tuple once.
        self.sent[rule.order] += len(tasks)
        for partner in self._partners(rule, item, tasks):
            pair = join_pair(item, partner, window_s)
            self.results[rule.order] += pair is not None
            yield pair

    def _partners(
        self, rule: Probe, item: JoinedTuple, tasks: Mapping[tuple[StoreLayout, int], list[Task]]
    ) -> Iterator[JoinedTuple]:
        for containers in tasks.values():
            for container in containers:
                yield from container.partners(item, rule.matches)

    def _receivers(self, rule: Probe, layout: StoreLayout, item: JoinedTuple) -> Sequence[int]:
        """Return the tasks that may have partners: one if the attribute's value is known."""
        if layout.partition is None:
            return (0,)
        for equal in rule.order.join.equal_to(layout.partition):
            if equal.relation in item.tuples:
                return (task_of(item.key(equal), self._parallelism),)
        return range(self._parallelism)

    def _history(self, join: Join) -> Iterator[JoinedTuple | None]:
        """Join the stored tuples of some streams, in any order of arrival; None: no result yet."""
        first, *remaining = sorted(join.relations)
        results = list(self._items(stream_store(first)))
        while remaining:
            covered = frozenset(join.relations - set(remaining))
            name = min(join.neighbours(covered))
            matches = sorted(pair for pair in join.across(covered) if pair[1].relation == name)
            task = Task()
            for item in self._items(stream_store(name)):
                task.add(item)
            extended: list[JoinedTuple] = []
            for item, partner in ((a, b) for a in results for b in task.partners(a, matches)):
                yield None
                if (pair := join_pair(item, partner, join.window_s)) is not None:
                    extended.append(pair)
            results = extended
            remaining.remove(name)
        yield from results

    def _items(self, join: Join) -> Iterator[JoinedTuple]:
        for epoch in self._epochs:
            yield from epoch.items(join)

    def _layouts(self, store: Join) -> tuple[StoreLayout, ...]:
        return self._rules.stores.get(store) or (StoreLayout(store, None),)

    def _start_epoch(self) -> None:
        epoch = PlanEpoch()
        stores = {*self._rules.stores, *map(stream_store, self._streams)}
        epoch.open(
            (layout for store in stores for layout in self._layouts(store)), self._parallelism
        )
        filled = (other for other in self._epochs if not other.is_empty)
        self._epochs = [*filled, epoch]
        self._epoch_from_s = self.watermark_s

    def _drop_state(self, watermark_s: float) -> None:
        """Start an epoch periodically, and drop epochs that no window reaches any more."""
        if watermark_s - self._epoch_from_s > self._retention_s / _EPOCHS:
            self._start_epoch()
        self._epochs = [
            epoch
            for epoch in self._epochs
            if watermark_s - epoch.newest_s <= self._retention_s or epoch is self._epochs[-1]
        ]
