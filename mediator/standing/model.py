"""Standing queries: joins of streams by equality, within a window; and statistics of their sizes.

Nothing here names a query: joins of the same relations, by the same predicates, within the same
window are one join, whoever asks for it.
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
"""Two attributes of different relations, which are equal."""


@dataclass(frozen=True, slots=True)
class Join:
    """A join of relations, or a single one.

    Attributes:
        relations: Each is a stream.
        predicates: All of them hold for a result.
        window_s: No two tuples of a result are further apart in time. Zero of a single relation,
            which is the same in whatever window it is read.
    """

    relations: frozenset[str]
    predicates: frozenset[Predicate] = frozenset()
    window_s: float = 0.0

    def __str__(self) -> str:
        return "⋈".join(sorted(self.relations))

    def to_json(self) -> dict[str, Any]:
        predicates = sorted(sorted(map(list, each)) for each in self.predicates)
        relations = sorted(self.relations)
        return {"relations": relations, "predicates": predicates, "window_s": self.window_s}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Join:
        predicates = (frozenset(Attribute(*at) for at in each) for each in document["predicates"])
        return cls(frozenset(document["relations"]), frozenset(predicates), document["window_s"])

    def within(self, relations: frozenset[str]) -> Join:
        """Return the join of some of the relations, with the predicates among them."""
        if len(relations) == 1:
            return Join(relations)
        inner = (each for each in self.predicates if {at.relation for at in each} <= relations)
        return Join(relations, frozenset(inner), self.window_s)

    def neighbours(self, relations: frozenset[str]) -> frozenset[str]:
        """Return the relations outside of some that a predicate joins to them."""
        found = {outer.relation for _, outer in self.across(relations)}
        return frozenset(found)

    def across(self, relations: frozenset[str]) -> Iterator[tuple[Attribute, Attribute]]:
        """Go through predicates with one side in some relations: that side, and the other."""
        for predicate in self.predicates:
            one, other = sorted(predicate)
            if (one.relation in relations) != (other.relation in relations):
                yield (one, other) if one.relation in relations else (other, one)

    @property
    def reachable(self) -> frozenset[str]:
        """The relations that predicates join to the first: all, or it is a cross product."""
        reached = frozenset([min(self.relations)])
        while more := self.neighbours(reached):
            reached |= more
        return reached

    def equal_to(self, attribute: Attribute) -> frozenset[Attribute]:
        """Return all attributes whose value is that of an attribute in every result."""
        equal = {attribute}
        while more := {at for each in self.predicates if each & equal for at in each} - equal:
            equal |= more
        return frozenset(equal)


def stream_store(relation: str) -> Join:
    """Return a relation as the join of itself."""
    return Join(frozenset([relation]))


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream, with its attributes.

    Attributes:
        rate: Tuples that arrive in a second.
    """

    attributes: frozenset[str]
    rate: float


@dataclass(frozen=True, slots=True)
class Statistics:
    """Rates, and how much joins make of them.

    Attributes:
        rates: Of each relation, in tuples a second.
        selectivities: The share of pairs for which a predicate holds; others have one of 1.
        sizes: Results in a second of joins of which that is known; the others are estimated.
    """

    rates: Mapping[str, float]
    selectivities: Mapping[Predicate, float] = field(default_factory=dict)
    sizes: Mapping[Join, float] = field(default_factory=dict)

    def size(self, join: Join) -> float:
        """Return the results of a join in a second.

        Each of n relations may have the latest tuple of a result; the others then have rate times
        window candidates each. Predicates are taken to be independent.
        """
        if (known := self.sizes.get(join)) is not None:
            return known
        relations = len(join.relations)
        pairs = prod(self.rates[name] for name in join.relations)
        matching = prod(self.selectivities.get(each, 1.0) for each in join.predicates)
        # Zero to the power of zero is one: a single relation has no window.
        return float(relations * pairs * join.window_s ** (relations - 1) * matching)


@dataclass(frozen=True, slots=True)
class Workload:
    """What is to be planned.

    Attributes:
        queries: By name.
        parallelism: Tasks that each store is partitioned into.
    """

    streams: Mapping[str, Stream]
    queries: Mapping[str, Join]
    statistics: Statistics
    parallelism: int = 1

    @property
    def joins(self) -> list[Join]:
        """The joins that are asked for, each once, in the order of the queries."""
        return list(dict.fromkeys(self.queries.values()))

    def only(self, names: Iterable[str]) -> Workload:
        """Return the same with some of the queries."""
        queries = {name: self.queries[name] for name in names}
        return Workload(self.streams, queries, self.statistics, self.parallelism)
