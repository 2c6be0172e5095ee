"""The reference runtime: executes the rules of a plan exactly, in one process and in plain Python.

*Earlier* is the order of the feed: a tuple meets what arrived before it, whatever the times say.
Times decide about windows only. So each result is made once, by the tuple of it that arrived last.
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
from mediator.standing.state import JoinedTuple, PlanEpoch, StreamTuple, Task, joined, task_of

__all__ = ["Result", "Runtime"]

_EPOCHS: Final = 4
"""In how many steps state is dropped: as many epochs, and one more, hold what a window needs."""


@dataclass(frozen=True, slots=True)
class Result:
    """A result of a query: a tuple of each of its relations."""

    query: str
    tuples: Mapping[str, StreamTuple]

    def to_json(self) -> dict[str, Any]:
        members = {name: dict(each.values) for name, each in sorted(self.tuples.items())}
        last_s = max(each.time_s for each in self.tuples.values())
        return {"query": self.query, "time_s": last_s, "tuples": members}


class Runtime:
    """Executes plans over batches of tuples.

    Args:
        streams: All are kept, for queries to come, if no query reads them yet, too.
        parallelism: Tasks of a store.
        retention_s: How long tuples are kept, and so the longest window a query may have.
        lateness_s: How long after a later tuple of an earlier batch a tuple may still arrive.

    Attributes:
        lateness_s: As given; it may become more.
        sent: Tuples that were sent on the last step of each prefix; a broadcast counts as many.
        found: Results of the last step of each prefix.
        stored: Tuples that were sent to be kept in each layout of a store.
        late: Tuples that came too late, and were dropped.
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
        self.found: Counter[ProbeOrder] = Counter()
        self.stored: Counter[StoreLayout] = Counter()
        self.late = 0
        self._begin_epoch()

    @property
    def latest_s(self) -> float:
        """The latest time of all tuples that were not late; minus infinity: there was none."""
        return self._latest_s

    @property
    def watermark_s(self) -> float:
        """Tuples from before are late, and what only they could join is dropped."""
        return self._latest_s - self.lateness_s

    def activate(self, plan: Plan) -> None:
        """Begin an epoch with another plan; queries have the full history at once.

        What was kept stays where it is, laid out as the plan of its epoch had it. Results that are
        no longer probed are dropped, and those that are probed from now on computed.

        Raises:
            ValueError: A query has a longer window than tuples are kept.
        """
        for _ in self.activation(plan):
            pass

    def activation(self, plan: Plan) -> Iterator[None]:
        """Do what `activate` does step by step; no tuple may be fed before all is done."""
        if any(query.window_s > self._retention_s for query in plan.workload.joins):
            raise ValueError("a query has a longer window than tuples are kept")
        former = self._rules.stores
        self._rules = compile_rules(plan)
        for epoch in self._epochs:
            for join in former.keys() - self._rules.stores.keys():
                if len(join.relations) > 1:
                    epoch.tasks.pop(join, None)
        self._begin_epoch()
        for join, layouts in self._rules.stores.items():
            if len(join.relations) > 1 and join not in former:
                for item in self._history(join):
                    yield
                    if item is not None:
                        for layout in layouts:
                            self._epochs[-1].add(layout, item)

    def feed(self, batch: Iterable[StreamTuple]) -> list[Result]:
        """Take a batch, in the order of the feed; return the results that it makes."""
        return [each for each in self.run(batch) if each is not None]

    def run(self, batch: Iterable[StreamTuple]) -> Iterator[Result | None]:
        """Do the same step by step, so that others may run between; None: a step without result.

        The next tuple is taken from the batch when all is done with the one before.
        """
        watermark_s = self.watermark_s
        self._drop_state(watermark_s)
        for each in batch:
            if each.time_s < watermark_s:
                self.late += 1
                continue
            self._latest_s = max(self._latest_s, each.time_s)
            yield from self._take(each)

    def restore(self, tuples: Iterable[StreamTuple], latest_s: float) -> Iterator[None]:
        """Keep tuples that were fed to another runtime, before the first plan is active.

        Args:
            latest_s: The latest time of all that were fed.
        """
        for each in tuples:
            self._keep(self._layouts(stream_store(each.stream))[0], JoinedTuple.of(each))
            yield
        self._latest_s = max(self._latest_s, latest_s)

    def kept(self) -> dict[StoreLayout, int]:
        """Return how many tuples each layout of a store holds."""
        found: Counter[StoreLayout] = Counter()
        for epoch in self._epochs:
            for layouts in epoch.tasks.values():
                for layout, tasks in layouts.items():
                    found[layout] += sum(len(task.tuples) for task in tasks)
        return dict(found)

    def _take(self, each: StreamTuple) -> Iterator[Result | None]:
        item = JoinedTuple.of(each)
        inputs = self._rules.inputs.get(each.stream)
        if inputs is None:
            self._keep(self._layouts(stream_store(each.stream))[0], item)
            return
        for label in inputs:
            yield from self._handle(label, item)

    def _handle(self, label: int, item: JoinedTuple) -> Iterator[Result | None]:
        """Do what the rules of an edge say with a tuple that arrives on it (algorithm 3)."""
        target = self._rules.edges[label].target
        for rule in self._rules.by_edge[label]:
            match rule:
                case Store():
                    self._keep(target, item)
                case Probe():
                    for found in self._probe(rule, item):
                        yield None
                        if found is None:
                            continue
                        yield from (Result(query, found.tuples) for query in rule.queries)
                        for out in rule.out:
                            yield from self._handle(out, found)

    def _keep(self, layout: StoreLayout, item: JoinedTuple) -> None:
        self.stored[layout] += 1
        self._epochs[-1].add(layout, item)

    def _probe(self, rule: Probe, item: JoinedTuple) -> Iterator[JoinedTuple | None]:
        """Ask each epoch that the window reaches, by a layout that it has (algorithm 4).

        Yields what a tuple makes with each of its partners; None: they are too far apart.
        What is done with a result changes larger stores only, and not the one that is asked.
        """
        target, window_s = rule.order.steps[-1], rule.order.join.window_s
        tasks: dict[tuple[StoreLayout, int], list[Task]] = {}
        for epoch in self._epochs:
            layouts = epoch.tasks.get(target.join)
            # Compared as `joined` does: differences are rounded, and may be where a window ends.
            if layouts and item.last_s - epoch.newest_s <= window_s:
                # An epoch may lack the layout of the present plan, and have several others.
                asked = {layout: self._receivers(rule, layout, item) for layout in layouts}
                layout = min(asked, key=lambda each: (len(asked[each]), each != target))
                for number in asked[layout]:
                    tasks.setdefault((layout, number), []).append(layouts[layout][number])
        # A task has its containers of all epochs, so it gets the tuple once.
        self.sent[rule.order] += len(tasks)
        for partner in self._partners(rule, item, tasks):
            both = joined(item, partner, window_s)
            self.found[rule.order] += both is not None
            yield both

    def _partners(
        self, rule: Probe, item: JoinedTuple, tasks: Mapping[tuple[StoreLayout, int], list[Task]]
    ) -> Iterator[JoinedTuple]:
        for containers in tasks.values():
            for container in containers:
                yield from container.partners(item, rule.matches)

    def _receivers(self, rule: Probe, layout: StoreLayout, item: JoinedTuple) -> Sequence[int]:
        """Return the tasks that may have partners: one if their attribute's value is known."""
        if layout.partition is None:
            return (0,)
        for equal in rule.order.join.equal_to(layout.partition):
            if equal.relation in item.tuples:
                return (task_of(item.key(equal), self._parallelism),)
        return range(self._parallelism)

    def _history(self, join: Join) -> Iterator[JoinedTuple | None]:
        """Join what is kept of some streams, whichever arrived first; None: a step on the way."""
        first, *rest = sorted(join.relations)
        found = list(self._items(stream_store(first)))
        while rest:
            known = frozenset(join.relations - set(rest))
            name = min(join.neighbours(known))
            matches = sorted(pair for pair in join.across(known) if pair[1].relation == name)
            whole = Task()
            for item in self._items(stream_store(name)):
                whole.add(item)
            wider: list[JoinedTuple] = []
            for item, partner in ((a, b) for a in found for b in whole.partners(a, matches)):
                yield None
                if (both := joined(item, partner, join.window_s)) is not None:
                    wider.append(both)
            found = wider
            rest.remove(name)
        yield from found

    def _items(self, join: Join) -> Iterator[JoinedTuple]:
        for epoch in self._epochs:
            yield from epoch.items(join)

    def _layouts(self, store: Join) -> tuple[StoreLayout, ...]:
        return self._rules.stores.get(store) or (StoreLayout(store, None),)

    def _begin_epoch(self) -> None:
        epoch = PlanEpoch()
        stores = {*self._rules.stores, *map(stream_store, self._streams)}
        epoch.open(
            (layout for store in stores for layout in self._layouts(store)), self._parallelism
        )
        kept = (each for each in self._epochs if not each.is_empty)
        self._epochs = [*kept, epoch]
        self._epoch_from_s = self.watermark_s

    def _drop_state(self, watermark_s: float) -> None:
        """Begin an epoch from time to time, and drop those that no window reaches any more."""
        if watermark_s - self._epoch_from_s > self._retention_s / _EPOCHS:
            self._begin_epoch()
        self._epochs = [
            epoch
            for epoch in self._epochs
            if watermark_s - epoch.newest_s <= self._retention_s or epoch is self._epochs[-1]
        ]
