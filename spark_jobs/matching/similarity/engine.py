"""Greedy matching: the best pair first, aggregated with neighbours, until none is similar enough.

Candidates wait in a priority queue by their similarity; ties follow by ids. The best pair is first
*aggregated*: a neighbour of one object is joined to it where this makes the pair more similar. If
nothing does, the pair is confirmed above the threshold, and what contains one of its objects is
removed. Neighbours of a confirmed pair become more similar by the relational part.

A changed pair is queued anew with another version, and old entries are skipped when they come up.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import product
from typing import Any, Final, TypeAlias

from spark_jobs.matching.similarity.candidates import Constraints, candidates, neighbours
from spark_jobs.matching.similarity.objects import MatchObject, Similarity
from spark_jobs.matching.similarity.spec import SimilaritySpec

__all__ = ["Link", "Matching", "Uncertain", "match"]

_MOST_PARTS: Final = 64
"""Objects of one side in a link."""
_UNCERTAIN: Final = 20
_SAMPLE: Final = 400
_DIGITS: Final = 12
"""Digits of a similarity: sums in another order must not decide."""

Parts: TypeAlias = tuple[int, ...]
Ends: TypeAlias = tuple[Parts, Parts]


@dataclass(frozen=True, slots=True)
class Link:
    """Objects that denote the same.

    Attributes:
        left: Ids, in ascending order; several are an aggregation.
        right: Likewise.
        similarity: Weighted; 0 where the link was decided by a person and not measured.
        terms: The similarity of each measure, by its label, and the relational one.
        decided: Whether the link was given, and not found.
    """

    left: tuple[str, ...]
    right: tuple[str, ...]
    similarity: float
    terms: Mapping[str, float]
    decided: bool = False


@dataclass(frozen=True, slots=True)
class Uncertain:
    """A candidate whose attributes decide the least: what a person should label next."""

    left: str
    right: str
    similarity: float
    terms: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Matching:
    """The result: every object is in one link at most.

    Attributes:
        candidates: Pairs that passed the constraints.
        aggregations: Pairs with an aggregation that were more similar than without it.
        uncertain: The least decided candidates, first.
        sample: Terms of some candidates, in the order of the measures.
    """

    links: tuple[Link, ...]
    candidates: int = 0
    aggregations: int = 0
    uncertain: tuple[Uncertain, ...] = ()
    sample: tuple[tuple[float, ...], ...] = ()


def match(
    left: Iterable[MatchObject], right: Iterable[MatchObject], spec: SimilaritySpec
) -> Matching:
    """Match the objects of two sources; the order in which they are given does not count."""
    return _Matcher(left, right, spec).match()


class _Side:
    """The objects of one source: sorted by ids, so that positions decide ties as ids do."""

    def __init__(self, objects: Iterable[MatchObject]) -> None:
        self.objects = sorted(objects, key=lambda each: each.id)
        self.neighbours = neighbours(self.objects)
        self.link: dict[int, int] = {}
        self._values: dict[Parts, tuple[Any, ...] | None] = {}

    def ids(self, parts: Parts) -> tuple[str, ...]:
        return tuple(self.objects[at].id for at in parts)

    def around(self, parts: Parts) -> set[int]:
        """The neighbours of an object or an aggregation."""
        return {near for at in parts for near in self.neighbours[at]} - {*parts}

    def free(self, parts: Parts) -> list[int]:
        return sorted(at for at in self.around(parts) if at not in self.link)

    def values(self, parts: Parts, similarity: Similarity) -> tuple[Any, ...] | None:
        """The values of an object or an aggregation; None: its lines do not meet."""
        if len(parts) == 1:
            return self.objects[parts[0]].values
        if parts not in self._values:
            self._values[parts] = self._combined(parts, similarity)
        return self._values[parts]

    def _combined(self, parts: Parts, similarity: Similarity) -> tuple[Any, ...] | None:
        """Join the parts from the first one on, each to one that it is a neighbour of."""
        found, rest = self.objects[parts[0]].values, list(parts[1:])
        while rest:
            for at in rest:
                joined = similarity.combine(found, self.objects[at].values)
                if joined is not None:
                    break
            else:
                return None
            found = joined
            rest.remove(at)
        return found


@dataclass(slots=True)
class _Pair:
    """A candidate, or an aggregated one.

    Attributes:
        attributes: The weighted similarity without the relational part.
        version: Counts its entries in the queue: only the last one is valid.
        larger: Its aggregation; while that is a candidate the pair gets no other one.
    """

    terms: tuple[float, ...]
    attributes: float
    relational: float = 0.0
    version: int = 0
    larger: Ends | None = None


@dataclass(slots=True)
class _Sample:
    """Candidates that are reported, chosen by what they are and not by when they came."""

    uncertain: list[tuple[float, Ends]] = field(default_factory=list)
    terms: list[tuple[float, ...]] = field(default_factory=list)
    seen: int = 0
    stride: int = 1

    def add(self, ends: Ends, pair: _Pair, distance: float) -> None:
        entry = (distance, ends)
        if len(self.uncertain) < _UNCERTAIN or entry < self.uncertain[-1]:
            insort(self.uncertain, entry)
            del self.uncertain[_UNCERTAIN:]
        if self.seen % self.stride == 0:
            self.terms.append(pair.terms)
        self.seen += 1
        if len(self.terms) > _SAMPLE:
            del self.terms[1::2]
            self.stride *= 2


class _Matcher:
    """The state of one matching."""

    def __init__(
        self, left: Iterable[MatchObject], right: Iterable[MatchObject], spec: SimilaritySpec
    ) -> None:
        self._spec = spec
        self._similarity = Similarity(spec)
        self._constraints = Constraints.of(spec)
        self._left, self._right = _Side(left), _Side(right)
        self._pairs: dict[Ends, _Pair] = {}
        self._holding: tuple[defaultdict[int, set[Ends]], defaultdict[int, set[Ends]]] = (
            defaultdict(set),
            defaultdict(set),
        )
        self._partners: defaultdict[int, set[int]] = defaultdict(set)
        self._members: list[Ends] = []
        self._queue: list[tuple[float, Parts, Parts, int]] = []
        self._links: list[Link] = []
        self._aggregations = 0
        self._sample = _Sample()

    def match(self) -> Matching:
        self._decide()
        count = self._collect()
        heapify(self._queue)
        while self._queue:
            negative, left, right, version = heappop(self._queue)
            pair = self._pairs.get((left, right))
            if pair is None or pair.version != version:
                continue
            if self._spec.aggregation and self._aggregate((left, right), pair, -negative):
                self._push((left, right), pair)
            elif -negative > self._spec.threshold:
                self._confirm((left, right), pair)
        return self._result(count)

    def _decide(self) -> None:
        """Confirm the links that are given, before anything is measured."""
        given: defaultdict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        for number, side in enumerate((self._left, self._right)):
            for at, each in enumerate(side.objects):
                if each.link is not None:
                    given[each.link][number].append(at)
        for _, (left, right) in sorted(given.items()):
            ends = tuple(left), tuple(right)
            self._link(ends)
            ids = self._left.ids(ends[0]), self._right.ids(ends[1])
            self._links.append(Link(*ids, 0.0, {}, decided=True))

    def _collect(self) -> int:
        """Queue the candidates; return how many there are."""
        left, right = self._left, self._right
        for one, other in candidates(left.objects, right.objects, self._spec):
            if one in left.link or other in right.link:
                continue
            ends: Ends = (one,), (other,)
            if pair := self._measured(ends):
                self._pairs[ends] = pair
                self._partners[one].add(other)
                self._hold(ends)
                distance = abs(pair.attributes - self._attribute_threshold)
                self._sample.add(ends, pair, round(distance, _DIGITS))
        for ends, pair in self._pairs.items():
            pair.relational = self._relational(ends) if self._members else 0.0
            self._queue.append((-self._total(pair), *ends, pair.version))
        return len(self._pairs)

    @property
    def _attribute_threshold(self) -> float:
        """The threshold if relations agree as attributes do."""
        return self._spec.threshold * (1 - self._spec.relational)

    def _measured(self, ends: Ends) -> _Pair | None:
        """Measure a pair; None: a constraint forbids it, or its aggregation is none."""
        for one, other in product(*ends):
            if not self._constraints.allow(self._left.objects[one], self._right.objects[other]):
                return None
        values = [
            side.values(parts, self._similarity)
            for side, parts in zip((self._left, self._right), ends, strict=True)
        ]
        if values[0] is None or values[1] is None:
            return None
        terms = self._similarity.terms(values[0], values[1])
        return None if terms is None else _Pair(terms, self._similarity.weighted(terms))

    def _total(self, pair: _Pair) -> float:
        return round(pair.attributes + self._spec.relational * pair.relational, _DIGITS)

    def _push(self, ends: Ends, pair: _Pair) -> None:
        pair.version += 1
        heappush(self._queue, (-self._total(pair), *ends, pair.version))

    def _hold(self, ends: Ends) -> None:
        for holding, parts in zip(self._holding, ends, strict=True):
            for at in parts:
                holding[at].add(ends)

    def _relational(self, ends: Ends) -> float:
        """The share of linked pairs among pairs of neighbours that are linked or may still be."""
        if not self._spec.relational:
            return 0.0
        around = self._right.around(ends[1])
        confirmed = possible = 0
        for near in self._left.around(ends[0]):
            if (number := self._left.link.get(near)) is not None:
                confirmed += len(around.intersection(self._members[number][1]))
            else:
                possible += len(around & self._partners[near])
        return confirmed / (confirmed + possible) if confirmed else 0.0

    def _aggregate(self, ends: Ends, pair: _Pair, similarity: float) -> bool:
        """Queue the neighbour that makes a pair the most similar; return whether there is one.

        Only the best is queued: all of them would be all connected subsets of a neighbourhood.
        """
        if pair.larger in self._pairs:
            return False
        found = [(larger, new) for larger in self._larger(ends) if (new := self._new(larger))]
        if not found:
            return False
        best, larger = min(found, key=lambda each: (-self._total(each[1]), each[0]))
        if self._total(larger) <= similarity:
            return False
        self._pairs[best], pair.larger = larger, best
        self._hold(best)
        self._push(best, larger)
        self._aggregations += 1
        return True

    def _new(self, ends: Ends) -> _Pair | None:
        """Measure a pair that is no candidate yet."""
        if ends in self._pairs or (pair := self._measured(ends)) is None:
            return None
        pair.relational = self._relational(ends)
        return pair

    def _larger(self, ends: Ends) -> Iterator[Ends]:
        left, right = ends
        if len(left) < _MOST_PARTS:
            yield from ((tuple(sorted((*left, at))), right) for at in self._left.free(left))
        if len(right) < _MOST_PARTS:
            yield from ((left, tuple(sorted((*right, at)))) for at in self._right.free(right))

    def _confirm(self, ends: Ends, pair: _Pair) -> None:
        self._link(ends)
        named = dict(zip(self._similarity.labels, pair.terms, strict=True))
        if self._spec.relational:
            named["relational"] = pair.relational
        ids = self._left.ids(ends[0]), self._right.ids(ends[1])
        self._links.append(Link(*ids, self._total(pair), named))
        for holding, parts in zip(self._holding, ends, strict=True):
            for at in parts:
                for removed in list(holding[at]):
                    self._remove(removed)
        self._recalculate(ends)

    def _link(self, ends: Ends) -> None:
        for side, parts in zip((self._left, self._right), ends, strict=True):
            for at in parts:
                assert at not in side.link, "an object is linked twice"
                side.link[at] = len(self._members)
        self._members.append(ends)

    def _remove(self, ends: Ends) -> None:
        del self._pairs[ends]
        for holding, parts in zip(self._holding, ends, strict=True):
            for at in parts:
                holding[at].discard(ends)
        (left, *more_left), (right, *more_right) = ends
        if not more_left and not more_right:
            self._partners[left].discard(right)

    def _recalculate(self, ends: Ends) -> None:
        """Renew the relational part of pairs of neighbours, and of no others."""
        if not self._spec.relational:
            return
        ours, theirs = self._left.around(ends[0]), self._right.around(ends[1])
        near = {pair for at in ours for pair in self._holding[0][at]}
        for pair_ends in sorted(near & {pair for at in theirs for pair in self._holding[1][at]}):
            pair = self._pairs[pair_ends]
            relational = self._relational(pair_ends)
            if relational != pair.relational:
                pair.relational = relational
                self._push(pair_ends, pair)

    def _result(self, count: int) -> Matching:
        return Matching(
            tuple(self._links),
            count,
            self._aggregations,
            tuple(self._uncertain()),
            tuple(self._sample.terms),
        )

    def _uncertain(self) -> Iterator[Uncertain]:
        for _, (left, right) in self._sample.uncertain:
            (one,), (other,) = self._left.ids(left), self._right.ids(right)
            values = self._left.objects[left[0]].values, self._right.objects[right[0]].values
            terms = self._similarity.terms(*values) or ()
            named = dict(zip(self._similarity.labels, terms, strict=True))
            yield Uncertain(one, other, self._similarity.weighted(terms), named)
