"""The rules of a plan as hops, each executed once in a batch for all its tuples together.

A hop has a level: what it probes, and what it is sent, is there after the levels below. So all hops
of a level, whichever trees they belong to, are one stage.
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
    "Stored",
    "compile_history",
    "compile_hops",
    "routes_of",
]

Matches: TypeAlias = tuple[tuple[Attribute, Attribute], ...]


@dataclass(frozen=True, slots=True)
class Hop:
    """A probe of a store by all rows that come along the same prefix.

    Attributes:
        matches: Attributes of the rows, and those of the store that equal them.
        queries: Those that the results belong to.
        stores: Where results are kept.
        then: The hops that results take next.
        level: The stage in which it is executed; the first is 1.
        keys: Attributes whose keys the results carry, since something later compares them.
        is_history: Whether it joins what is stored with what is stored, whichever was earlier.
    """

    order: ProbeOrder
    matches: Matches
    queries: tuple[str, ...]
    stores: tuple[StoreLayout, ...]
    then: tuple[int, ...]
    level: int
    keys: tuple[Attribute, ...]
    is_history: bool = False

    @property
    def target(self) -> Join:
        return self.order.steps[-1].join

    @property
    def known(self) -> frozenset[str]:
        """The relations of the rows that are sent."""
        return self.order.join.relations - self.target.relations

    @property
    def carried(self) -> tuple[Attribute, ...]:
        """Attributes whose keys the rows carry."""
        later = {at for at in self.keys if at.relation in self.known}
        return tuple(sorted(later | {mine for mine, _ in self.matches}))


@dataclass(frozen=True, slots=True)
class Input:
    """What is done with the tuples of a stream: where they are kept, and their first hops."""

    stores: tuple[StoreLayout, ...]
    then: tuple[int, ...]
    keys: tuple[Attribute, ...]


@dataclass(frozen=True, slots=True)
class Stored:
    """How a layout of a store is kept.

    Attributes:
        level: The stage that keeps what arrives: no later one adds to it.
        keys: Attributes whose keys the rows carry.
        looked_up: Those that rows are looked up by.
    """

    level: int
    keys: tuple[Attribute, ...]
    looked_up: tuple[Attribute, ...]


@dataclass(frozen=True, slots=True)
class Hops:
    """All that is executed in a batch.

    Attributes:
        inputs: By stream. In a history, their tuples are those that are stored.
        stores: By layout.
    """

    hops: tuple[Hop, ...]
    inputs: Mapping[str, Input]
    stores: Mapping[StoreLayout, Stored]

    @property
    def levels(self) -> int:
        """The number of stages after that which reads tuples."""
        stores = (each.level for each in self.stores.values())
        return max(*(hop.level for hop in self.hops), *stores, 1)


Layouts: TypeAlias = Sequence[StoreLayout]
"""Those of an epoch."""


@dataclass(frozen=True, slots=True)
class Route:
    """How the rows of a hop get to what some epochs keep in a layout of its store.

    Attributes:
        by: The attribute of the rows that says the partition group; None: all are asked, or there
            is one.
        epochs: Indexes of the epochs whose containers are asked.
        reach_s: The latest time in them; windows that end before it do not reach them.
    """

    layout: StoreLayout
    by: Attribute | None
    epochs: tuple[int, ...]
    reach_s: float

    def groups(self, parallelism: int) -> int:
        """Return how many partition groups each row is sent to."""
        return 1 if self.by is not None or self.layout.partition is None else parallelism


def compile_hops(rules: Rules, streams: Iterable[str], joins: Collection[Join]) -> Hops:
    """Turn rules into hops; streams that no query reads are kept as well."""
    return _Compiler(rules, joins).compile(streams)


def compile_history(stores: Mapping[StoreLayout, Stored], wanted: Collection[Join]) -> Hops:
    """Return hops that compute intermediate results from the streams that are stored.

    Args:
        stores: Those of the present plan.
        wanted: The intermediate results.
    """
    layouts: defaultdict[Join, list[StoreLayout]] = defaultdict(list)
    for each in stores:
        layouts[each.join].append(each)
    hops: list[Hop] = []
    inputs: defaultdict[str, list[int]] = defaultdict(list)
    kept: dict[StoreLayout, Stored] = {}
    for join in sorted(wanted, key=str):
        start, *names = _chain(join)
        inputs[start].append(len(hops))
        compared = sorted({at for each in join.predicates for at in each})
        steps: tuple[StoreLayout, ...] = ()
        for level, name in enumerate(names, 1):
            steps = (*steps, layouts[stream_store(name)][0])
            part = join.within(frozenset([start, *names[:level]]))
            matches = tuple(sorted(part.across(part.relations - {name})))
            is_last = level == len(names)
            filled = tuple(layouts[join]) if is_last else ()
            then = () if is_last else (len(hops) + 1,)
            keys = tuple(at for at in compared if at.relation in part.relations)
            order = ProbeOrder(start, steps, part)
            hops.append(Hop(order, matches, (), filled, then, level, keys, is_history=True))
            kept |= {each: replace(stores[each], level=level + 1) for each in filled}
    reads = {name: Input((), tuple(then), _keys_of(name, wanted)) for name, then in inputs.items()}
    return Hops(tuple(hops), reads, kept)


def routes_of(hop: Hop, epochs: Sequence[tuple[float, Layouts]]) -> tuple[Route, ...]:
    """Say how the rows of a hop reach each epoch: its latest time and its layouts are given.

    The last epoch is the present one, which every window reaches. An epoch may lack the layout of
    the plan, and have several others: the one that the fewest groups have to be asked of is taken.
    """
    found: dict[StoreLayout, Route] = {}
    for number, (newest_s, layouts) in enumerate(epochs):
        those = [each for each in layouts if each.join == hop.target]
        if not those:
            continue
        reach_s = float("inf") if number == len(epochs) - 1 else newest_s
        routes = [Route(each, _by(hop, each), (number,), reach_s) for each in those]
        best = min(routes, key=lambda at: (at.groups(2), at.layout != hop.order.steps[-1]))
        before = found.get(best.layout)
        if before is not None:
            epochs_so_far = (*before.epochs, number)
            best = Route(best.layout, best.by, epochs_so_far, max(before.reach_s, reach_s))
        found[best.layout] = best
    return tuple(found.values())


def _by(hop: Hop, layout: StoreLayout) -> Attribute | None:
    if layout.partition is None:
        return None
    equal = hop.order.join.equal_to(layout.partition)
    return next((mine for mine, _ in hop.matches if mine in equal), None)


def _chain(join: Join) -> list[str]:
    """Put the relations of a join into an order in which a predicate joins each to those before."""
    chain = [min(join.relations)]
    while rest := join.neighbours(frozenset(chain)):
        chain.append(min(rest))
    return chain


def _keys_of(relation: str, joins: Iterable[Join]) -> tuple[Attribute, ...]:
    found = {at for join in joins for each in join.predicates for at in each}
    return tuple(sorted(at for at in found if at.relation == relation))


class _Compiler:
    def __init__(self, rules: Rules, joins: Collection[Join]) -> None:
        self._rules = rules
        self._joins = joins
        # Shorter prefixes and smaller stores first: a hop depends on these only.
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
            layout: Stored(1, of.keys, self._looked_up(layout, hops))
            for of in inputs.values()
            for layout in of.stores
        }
        filled: defaultdict[StoreLayout, int] = defaultdict(int)
        for hop in hops:
            for layout in hop.stores:
                filled[layout] = max(filled[layout], hop.level)
        for layout, level in filled.items():
            compared = tuple(sorted(self._outer(layout.join.relations)))
            stores[layout] = Stored(level + 1, compared, self._looked_up(layout, hops))
        return Hops(hops, inputs, stores)

    def _looked_up(self, layout: StoreLayout, hops: Iterable[Hop]) -> tuple[Attribute, ...]:
        found = {hop.matches[0][1] for hop in hops if hop.order.steps[-1] == layout}
        return tuple(sorted(found))

    def _outer(self, relations: frozenset[str]) -> set[Attribute]:
        """Return attributes of relations that some query compares with those of others."""
        joins = (join for join in self._joins if relations < join.relations)
        return {inner for join in joins for inner, _ in join.across(relations)}

    def _levels(self) -> dict[int, int]:
        filled: defaultdict[Join, int] = defaultdict(int)
        sent: defaultdict[int, int] = defaultdict(int)
        levels = {}
        for label in self._labels:
            probe = self._probes[label]
            level = 1 + max(sent[label], filled[probe.order.steps[-1].join])
            levels[label] = level
            for out in probe.out:
                sent[out] = level
            if self._stores(probe.out):
                filled[probe.order.join] = max(filled[probe.order.join], level)
        return levels

    def _carried(
        self, label: int, keys: Mapping[int, frozenset[Attribute]]
    ) -> frozenset[Attribute]:
        """Return the attributes that something compares after a hop."""
        probe = self._probes[label]
        relations = probe.order.join.relations
        found = {
            at
            for out in probe.out
            if out in self._numbers
            for at in (*(mine for mine, _ in self._probes[out].matches), *keys[out])
            if at.relation in relations
        }
        if self._stores(probe.out):
            found |= self._outer(relations)
        return frozenset(found)

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
