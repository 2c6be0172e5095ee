"""Candidate probe orders: sequences of stores that a tuple can be sent through.

A prefix of a probe order is the probe order of a smaller join. Prefixes with the same sequence,
partitions, predicates and window are therefore equal, whichever query they come from: queries share
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, TypeAlias

from mediator.standing.model import Attribute, Join, Statistics, Workload, stream_store

__all__ = [
    "Partitions",
    "ProbeOrder",
    "StoreLayout",
    "intermediates",
    "partition_candidates",
    "probe_orders",
    "step_cost",
]


@dataclass(frozen=True, slots=True)
class StoreLayout:
    """A store, and the attribute by whose hash its tuples are partitioned.

    Attributes:
        join: The contents: the tuples of a stream, or the results of a join.
        partition: None: a single task.
    """

    join: Join
    partition: Attribute | None

    def __str__(self) -> str:
        if self.partition is None:
            return str(self.join)
        # Attribute names are unique in a stream; a join may have two of the same name.
        is_stream = len(self.join.relations) == 1
        return f"{self.join}[{self.partition.name if is_stream else self.partition}]"

    def to_json(self) -> dict[str, Any]:
        partition = None if self.partition is None else list(self.partition)
        return {**self.join.to_json(), "partition": partition}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> StoreLayout:
        partition = document["partition"]
        attribute = None if partition is None else Attribute(*partition)
        return cls(Join.from_json(document), attribute)


@dataclass(frozen=True, slots=True)
class ProbeOrder:
    """A probe order, or a prefix of one.

    Attributes:
        start: The relation whose tuples are sent.
        steps: The stores that they are sent to, in order.
        join: The join of them all.
    """

    start: str
    steps: tuple[StoreLayout, ...]
    join: Join

    def __str__(self) -> str:
        return f"⟨{', '.join([self.start, *map(str, self.steps)])}⟩"

    @property
    def before(self) -> ProbeOrder:
        """The prefix without the last step."""
        relations = self.join.relations - self.steps[-1].join.relations
        return ProbeOrder(self.start, self.steps[:-1], self.join.within(relations))

    @property
    def prefixes(self) -> list[ProbeOrder]:
        """All non-empty prefixes, shortest first; the last is this order."""
        prefixes = [self] if self.steps else []
        while len(prefixes[-1].steps) > 1:
            prefixes.append(prefixes[-1].before)
        return prefixes[::-1]

    @property
    def probed(self) -> frozenset[Join]:
        return frozenset(step.join for step in self.steps)

    def to_json(self) -> dict[str, Any]:
        steps = [step.to_json() for step in self.steps]
        return {"start": self.start, "steps": steps, "join": self.join.to_json()}


Partitions: TypeAlias = Mapping[Join, Sequence[Attribute | None]]
"""The attributes by which each store can be partitioned."""


def intermediates(query: Join) -> list[Join]:
    """Return the joins to materialise for a query: connected, of two relations or more."""
    names = sorted(query.relations)
    subjoins = (
        query.within(frozenset(subset))
        for size in range(2, len(names))
        for subset in combinations(names, size)
    )
    return [subjoin for subjoin in subjoins if subjoin.reachable == subjoin.relations]


def partition_candidates(workload: Workload, stores: Iterable[Join]) -> Partitions:
    """Return the attributes of each store that some query joins to a relation outside of it."""
    if workload.parallelism == 1:
        return dict.fromkeys(stores, (None,))
    joins = workload.joins
    return {
        store: sorted({at for join in joins for at in _joined_outside(store, join)})
        for store in stores
    }


def probe_orders(
    join: Join, start: str, stores: Sequence[Join], partitions: Partitions
) -> Iterator[ProbeOrder]:
    """Yield the probe orders of one relation: no cross products, every relation once."""
    return _extend(ProbeOrder(start, (), stream_store(start)), join, stores, partitions)


def step_cost(order: ProbeOrder, statistics: Statistics, parallelism: int) -> float:
    """Return the tuples a second that the last step of a probe order sends.

    Of the results of the preceding join of n relations, one in n has its latest tuple in the
    relation where this order starts.
    """
    preceding = order.before.join
    copies = 1 if _is_routed(order) else parallelism
    return statistics.size(preceding) / len(preceding.relations) * copies


def _extend(
    head: ProbeOrder, join: Join, stores: Sequence[Join], partitions: Partitions
) -> Iterator[ProbeOrder]:
    covered = head.join.relations
    if covered == join.relations:
        yield head
        return
    neighbours = join.neighbours(covered)
    for store in stores:
        if covered & store.relations or not neighbours & store.relations:
            continue
        extended = join.within(covered | store.relations)
        for attribute in partitions[store]:
            steps = (*head.steps, StoreLayout(store, attribute))
            yield from _extend(ProbeOrder(head.start, steps, extended), join, stores, partitions)


def _is_routed(order: ProbeOrder) -> bool:
    """Whether the partners' task is known for a tuple on the last step."""
    layout = order.steps[-1]
    if layout.partition is None:
        return True
    covered = order.join.relations - layout.join.relations
    return any(at.relation in covered for at in order.join.equal_to(layout.partition))


def _joined_outside(store: Join, join: Join) -> set[Attribute]:
    if not store.relations <= join.relations or join.within(store.relations) != store:
        return set()
    return {inner for inner, _ in join.across(store.relations)}
