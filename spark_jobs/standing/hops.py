"""The rules of a plan as hops, each executed once per batch for all its tuples.

A hop has a level: lower levels complete the store that it probes and the rows that it receives. So
all hops of a level, of any tree, are one stage.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from mediator.standing.model import Attribute, Join, stream_store
from mediator.standing.probe_orders import ProbeOrder, StoreLayout
from mediator.standing.rules import Probe, Rules, Store

__all__ = [
    "Hop",
    "Hops",
    "Input",
    "Layouts",
    "Route",
    "StoredLayout",
    "compile_history",
    "compile_hops",
    "routes_of",
]

Matches: TypeAlias = tuple[tuple[Attribute, Attribute], ...]


@dataclass(frozen=True, slots=True)
class Hop:
    """A probe of a store by all rows with the same prefix.

    Attributes:
        matches: Attributes of the rows, and the equal attributes of the store.
        queries: The queries to which the results belong.
        stores: The layouts that store the results.
        next_hops: The hops that results take next.
        level: The stage in which it is executed; the first is 1.
        keys: Attributes whose keys the results carry, because later hops compare them.
        is_history: Whether it joins stored rows with stored rows, regardless of their order.
    """

    order: ProbeOrder
    matches: Matches
    queries: tuple[str, ...]
    stores: tuple[StoreLayout, ...]
    next_hops: tuple[int, ...]
    level: int
    keys: tuple[Attribute, ...]
    is_history: bool = False

    @property
    def target(self) -> Join:
        return self.order.steps[-1].join

    @property
    def known(self) -> frozenset[str]:
        """The relations of the sent rows."""
        return self.order.join.relations - self.target.relations

    @property
    def carried(self) -> tuple[Attribute, ...]:
        """Attributes whose keys the rows carry."""
        later = {at for at in self.keys if at.relation in self.known}
        return tuple(sorted(later | {mine for mine, _ in self.matches}))


@dataclass(frozen=True, slots=True)
class Input:
    """The destinations of a stream's tuples: their stores, and their first hops."""

    stores: tuple[StoreLayout, ...]
    next_hops: tuple[int, ...]
    keys: tuple[Attribute, ...]


@dataclass(frozen=True, slots=True)
class StoredLayout:
    """How a layout of a store is maintained.

    Attributes:
        level: The stage that stores arriving rows; later stages add none.
        keys: Attributes whose keys the rows carry.
        indexed: Attributes by which rows are looked up.
    """

    level: int
    keys: tuple[Attribute, ...]
    indexed: tuple[Attribute, ...]


@dataclass(frozen=True, slots=True)
class Hops:
    """The hops of a batch.

    Attributes:
        inputs: Inputs by stream. In a history, their tuples are the stored ones.
        stores: Stores by layout.
    """

    hops: tuple[Hop, ...]
    inputs: Mapping[str, Input]
    stores: Mapping[StoreLayout, StoredLayout]

    @property
    def levels(self) -> int:
        """The number of stages after the one that reads tuples."""
        stores = (store.level for store in self.stores.values())
        return max(*(hop.level for hop in self.hops), *stores, 1)


Layouts: TypeAlias = Sequence[StoreLayout]
"""The layouts of an epoch."""


@dataclass(frozen=True, slots=True)
class Route:
    """How the rows of a hop reach the rows of some epochs in a layout of its store.

    Attributes:
        key: The attribute of the rows that determines the partition group; None: all groups are
            probed, or there is only one.
        epochs: Indexes of the probed epochs.
        reach_s: The latest time in them; windows that end earlier do not reach them.
    """

    layout: StoreLayout
    key: Attribute | None
    epochs: tuple[int, ...]
    reach_s: float

    def groups(self, parallelism: int) -> int:
        """Return the number of partition groups that each row is sent to."""
        return 1 if self.key is not None or self.layout.partition is None else parallelism


def compile_hops(rules: Rules, streams: Iterable[str], joins: Collection[Join]) -> Hops:
    """Compile rules into hops; streams that no query reads are also stored."""
    return _Compiler(rules, joins).compile(streams)


def compile_history(stores: Mapping[StoreLayout, StoredLayout], joins: Collection[Join]) -> Hops:
    """Return hops that compute intermediate results from stored streams.

    Args:
        stores: The stores of the current plan.
        joins: The intermediate results to compute.
    """
    layouts: defaultdict[Join, list[StoreLayout]] = defaultdict(list)
    for layout in stores:
        layouts[layout.join].append(layout)
    hops: list[Hop] = []
    inputs: defaultdict[str, list[int]] = defaultdict(list)
    history: dict[StoreLayout, StoredLayout] = {}
    for join in sorted(joins, key=str):
        start, *names = _chain(join)
        inputs[start].append(len(hops))
        compared = sorted({at for predicate in join.predicates for at in predicate})
        steps: tuple[StoreLayout, ...] = ()
        for level, name in enumerate(names, 1):
            steps = (*steps, layouts[stream_store(name)][0])
            prefix = join.within(frozenset([start, *names[:level]]))
            matches = tuple(sorted(prefix.across(prefix.relations - {name})))
            is_last = level == len(names)
            filled = tuple(layouts[join]) if is_last else ()
            next_hops = () if is_last else (len(hops) + 1,)
            keys = tuple(at for at in compared if at.relation in prefix.relations)
            order = ProbeOrder(start, steps, prefix)
            hops.append(Hop(order, matches, (), filled, next_hops, level, keys, is_history=True))
            history |= {layout: replace(stores[layout], level=level + 1) for layout in filled}
    reads = {name: Input((), tuple(first), _keys_of(name, joins)) for name, first in inputs.items()}
    return Hops(tuple(hops), reads, history)


def routes_of(hop: Hop, epochs: Sequence[tuple[float, Layouts]]) -> tuple[Route, ...]:
    """Return how the rows of a hop reach each epoch, given by its latest time and its layouts.

    The last epoch is the current one, which every window reaches. An epoch may have several other
    layouts instead of the plan's: the layout with the fewest groups to probe is chosen.
    """
    routes: dict[StoreLayout, Route] = {}
    for number, (newest_s, layouts) in enumerate(epochs):
        targets = [layout for layout in layouts if layout.join == hop.target]
        if not targets:
            continue
        reach_s = float("inf") if number == len(epochs) - 1 else newest_s
        options = [Route(at, _key(hop, at), (number,), reach_s) for at in targets]
        best = min(options, key=lambda at: (at.groups(2), at.layout != hop.order.steps[-1]))
        before = routes.get(best.layout)
        if before is not None:
            epochs_so_far = (*before.epochs, number)
            best = Route(best.layout, best.key, epochs_so_far, max(before.reach_s, reach_s))
        routes[best.layout] = best
    return tuple(routes.values())


def _key(hop: Hop, layout: StoreLayout) -> Attribute | None:
    if layout.partition is None:
        return None
    equal = hop.order.join.equal_to(layout.partition)
    return next((mine for mine, _ in hop.matches if mine in equal), None)


def _chain(join: Join) -> list[str]:
    """Order the relations of a join so that a predicate joins each with earlier ones."""
    chain = [min(join.relations)]
    while candidates := join.neighbours(frozenset(chain)):
        chain.append(min(candidates))
    return chain


def _keys_of(relation: str, joins: Iterable[Join]) -> tuple[Attribute, ...]:
    attributes = {at for join in joins for predicate in join.predicates for at in predicate}
    return tuple(sorted(at for at in attributes if at.relation == relation))


class _Compiler:
    def __init__(self, rules: Rules, joins: Collection[Join]) -> None:
        self._rules = rules
        self._joins = joins
        # Shorter prefixes and smaller stores first: a hop depends only on these.
        probes = {
            label: rule for label, (rule,) in rules.by_edge.items() if isinstance(rule, Probe)
        }
        self._labels = sorted(probes, key=lambda at: len(probes[at].order.join.relations))
        self._probes = probes
        self._numbers = {label: number for number, label in enumerate(self._labels)}

    def compile(self, streams: Iterable[str]) -> Hops:
        levels = self._levels()
        keys: dict[int, frozenset[Attribute]] = {}
        for label in reversed(self._labels):
            keys[label] = self._carried(label, keys)
        hops = tuple(
            Hop(
                probe.order,
                probe.matches,
                probe.queries,
                self._stores(probe.out),
                self._hops(probe.out),
                levels[label],
                tuple(sorted(keys[label])),
            )
            for label, probe in ((label, self._probes[label]) for label in self._labels)
        )
        inputs = {name: self._input(name) for name in sorted({*streams, *self._rules.inputs})}
        stores = {
            layout: StoredLayout(1, source.keys, self._indexed(layout, hops))
            for source in inputs.values()
            for layout in source.stores
        }
        filled_levels: defaultdict[StoreLayout, int] = defaultdict(int)
        for hop in hops:
            for layout in hop.stores:
                filled_levels[layout] = max(filled_levels[layout], hop.level)
        for layout, level in filled_levels.items():
            compared = tuple(sorted(self._outer(layout.join.relations)))
            stores[layout] = StoredLayout(level + 1, compared, self._indexed(layout, hops))
        return Hops(hops, inputs, stores)

    def _indexed(self, layout: StoreLayout, hops: Iterable[Hop]) -> tuple[Attribute, ...]:
        attributes = {hop.matches[0][1] for hop in hops if hop.order.steps[-1] == layout}
        return tuple(sorted(attributes))

    def _outer(self, relations: frozenset[str]) -> set[Attribute]:
        """Return attributes of relations that some query compares with other relations."""
        joins = (join for join in self._joins if relations < join.relations)
        return {inner for join in joins for inner, _ in join.across(relations)}

    def _levels(self) -> dict[int, int]:
        filled_levels: defaultdict[Join, int] = defaultdict(int)
        sent_levels: defaultdict[int, int] = defaultdict(int)
        levels = {}
        for label in self._labels:
            probe = self._probes[label]
            level = 1 + max(sent_levels[label], filled_levels[probe.order.steps[-1].join])
            levels[label] = level
            for out in probe.out:
                sent_levels[out] = level
            if self._stores(probe.out):
                filled_levels[probe.order.join] = max(filled_levels[probe.order.join], level)
        return levels

    def _carried(
        self, label: int, keys: Mapping[int, frozenset[Attribute]]
    ) -> frozenset[Attribute]:
        """Return the attributes that later hops compare."""
        probe = self._probes[label]
        relations = probe.order.join.relations
        attributes = {
            at
            for out in probe.out
            if out in self._numbers
            for at in (*(mine for mine, _ in self._probes[out].matches), *keys[out])
            if at.relation in relations
        }
        if self._stores(probe.out):
            attributes |= self._outer(relations)
        return frozenset(attributes)

    def _input(self, stream: str) -> Input:
        labels = self._rules.inputs.get(stream, ())
        stores = self._stores(labels)
        if not stores:
            stores = (StoreLayout(stream_store(stream), None),)
        return Input(stores, self._hops(labels), _keys_of(stream, self._joins))

    def _stores(self, labels: Iterable[int]) -> tuple[StoreLayout, ...]:
        return tuple(
            self._rules.edges[label].target
            for label in labels
            if isinstance(self._rules.by_edge[label][0], Store)
        )

    def _hops(self, labels: Iterable[int]) -> tuple[int, ...]:
        return tuple(self._numbers[label] for label in labels if label in self._numbers)
