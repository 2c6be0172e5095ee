"""Standing queries as windowed equi-joins of streams, and statistics of their sizes.

Joins do not refer to queries: equal relations, predicates and windows are one join, whichever
queries use it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple, TypeAlias

__all__ = ["Attribute", "Join", "Predicate", "Statistics", "Stream", "Workload", "stream_store"]


class Attribute(NamedTuple):
    relation: str
    name: str

    def __str__(self) -> str:
        return f"{self.relation}.{self.name}"


Predicate: TypeAlias = frozenset[Attribute]
"""An equality of two attributes of different relations."""


@dataclass(frozen=True, slots=True)
class Join:
    """A join of relations, or a single relation.

    Attributes:
        relations: Names of streams.
        predicates: All hold for every result.
        window_s: Maximum time between two tuples of a result, in seconds. Zero for a single
            relation, which no window changes.
    """

    relations: frozenset[str]
    predicates: frozenset[Predicate] = frozenset()
    window_s: float = 0.0

    def __str__(self) -> str:
        return "⋈".join(sorted(self.relations))

    def to_json(self) -> dict[str, Any]:
        predicates = sorted(sorted(map(list, predicate)) for predicate in self.predicates)
        relations = sorted(self.relations)
        return {"relations": relations, "predicates": predicates, "window_s": self.window_s}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Join:
        predicates = (
            frozenset(Attribute(*at) for at in predicate) for predicate in document["predicates"]
        )
        return cls(frozenset(document["relations"]), frozenset(predicates), document["window_s"])

    def within(self, relations: frozenset[str]) -> Join:
        """Return the join of a subset of the relations, with the predicates among them."""
        if len(relations) == 1:
            return Join(relations)
        inner = (
            predicate
            for predicate in self.predicates
            if {at.relation for at in predicate} <= relations
        )
        return Join(relations, frozenset(inner), self.window_s)

    def neighbours(self, relations: frozenset[str]) -> frozenset[str]:
        """Return the relations that a predicate joins to some relations, without these."""
        names = {outer.relation for _, outer in self.across(relations)}
        return frozenset(names)

    def across(self, relations: frozenset[str]) -> Iterator[tuple[Attribute, Attribute]]:
        """Yield predicates between some relations and others: the inner side, then the outer."""
        for predicate in self.predicates:
            one, other = sorted(predicate)
            if (one.relation in relations) != (other.relation in relations):
                yield (one, other) if one.relation in relations else (other, one)

    @property
    def reachable(self) -> frozenset[str]:
        """The relations connected to the first one; if not all, this is a cross product."""
        reached = frozenset([min(self.relations)])
        while more := self.neighbours(reached):
            reached |= more
        return reached

    def equal_to(self, attribute: Attribute) -> frozenset[Attribute]:
        """Return the attributes equal to an attribute in every result."""
        equal = {attribute}
        while (
            more := {at for predicate in self.predicates if predicate & equal for at in predicate}
            - equal
        ):
            equal |= more
        return frozenset(equal)


def stream_store(relation: str) -> Join:
    """Return a single relation as a join."""
    return Join(frozenset([relation]))


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream, with its attributes.

    Attributes:
        rate: Arriving tuples a second.
    """

    attributes: frozenset[str]
    rate: float


@dataclass(frozen=True, slots=True)
class Statistics:
    """Arrival rates of relations and result rates of joins.

    Attributes:
        rates: By relation, in tuples a second.
        selectivities: Share of pairs for which a predicate holds; 1 if absent.
        sizes: Known results a second of joins; other joins are estimated.
    """

    rates: Mapping[str, float]
    selectivities: Mapping[Predicate, float] = field(default_factory=dict)
    sizes: Mapping[Join, float] = field(default_factory=dict)

    def size(self, join: Join) -> float:
        """Return the results of a join in a second.

        Each of n relations can have the latest tuple of a result; each other relation then has rate
        times window candidates. Predicates are assumed to be independent.
        """
        if (size := self.sizes.get(join)) is not None:
            return size
        relations = len(join.relations)
        pairs = prod(self.rates[name] for name in join.relations)
        matching = prod(self.selectivities.get(predicate, 1.0) for predicate in join.predicates)
        # Zero to the power of zero is one: a single relation has no window.
        return float(relations * pairs * join.window_s ** (relations - 1) * matching)


@dataclass(frozen=True, slots=True)
class Workload:
    """Queries to plan, with streams and statistics.

    Attributes:
        queries: By name.
        parallelism: Tasks of each store.
    """

    streams: Mapping[str, Stream]
    queries: Mapping[str, Join]
    statistics: Statistics
    parallelism: int = 1

    @property
    def joins(self) -> list[Join]:
        """The distinct joins of the queries, in the order of the queries."""
        return list(dict.fromkeys(self.queries.values()))

    def only(self, names: Iterable[str]) -> Workload:
        """Return the workload restricted to some queries."""
        queries = {name: self.queries[name] for name in names}
        return Workload(self.streams, queries, self.statistics, self.parallelism)
