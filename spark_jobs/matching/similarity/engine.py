"""Greedy matching: the best pair first, aggregated with neighbours, until none is similar enough.

Candidates wait in a priority queue by their similarity; ties are broken by ids. The best pair is
first *aggregated*: a neighbour of one object is joined to it if this makes the pair more similar.
If no neighbour does, a pair above the threshold is confirmed, and other pairs with its objects are
removed. The relational term makes neighbours of a confirmed pair more similar.

A changed pair is queued again with a new version; its old entries are skipped.
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

_MAX_PARTS: Final = 64
"""Maximum objects of one side in a link."""
_UNCERTAIN_PAIRS: Final = 20
_SAMPLE_PAIRS: Final = 400
_DIGITS: Final = 12
"""Digits of a similarity: the order of a sum must not matter."""

Parts: TypeAlias = tuple[int, ...]
Ends: TypeAlias = tuple[Parts, Parts]


@dataclass(frozen=True, slots=True)
class Link:
    """Objects that denote the same.

    Attributes:
        left: Ids, in ascending order; several ids are an aggregation.
        right: Likewise.
        similarity: The weighted similarity; 0 for a user's decision, which is not measured.
        terms: The similarity of each measure, by its label, and the relational term.
        decided: Whether the link is a user's decision.
    """

    left: tuple[str, ...]
    right: tuple[str, ...]
    similarity: float
    terms: Mapping[str, float]
    decided: bool = False


@dataclass(frozen=True, slots=True)
class Uncertain:
    """A candidate near the threshold, which a user should label next."""

    left: str
    right: str
    similarity: float
    terms: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Matching:
    """The result: every object is in at most one link.

    Attributes:
        candidates: The number of pairs that passed the constraints.
        aggregations: The number of aggregations that increased a pair's similarity.
        uncertain: The most uncertain candidates, in descending order of uncertainty.
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
    """Match the objects of two sources, regardless of their order."""
    return _Matcher(left, right, spec).match()


class _Side:
    """The objects of one source, sorted by ids, so that positions break ties as ids would."""

    def __init__(self, objects: Iterable[MatchObject]) -> None:
        self.objects = sorted(objects, key=lambda obj: obj.id)
        self.neighbours = neighbours(self.objects)
        self.link: dict[int, int] = {}
        self._values: dict[Parts, tuple[Any, ...] | None] = {}

    def ids(self, parts: Parts) -> tuple[str, ...]:
        return tuple(self.objects[at].id for at in parts)

    def around(self, parts: Parts) -> set[int]:
        """Return the neighbours of an object or an aggregation."""
        return {near for at in parts for near in self.neighbours[at]} - {*parts}

    def free(self, parts: Parts) -> list[int]:
        return sorted(at for at in self.around(parts) if at not in self.link)

    def values(self, parts: Parts, similarity: Similarity) -> tuple[Any, ...] | None:
        """Return the values of an object or an aggregation; None: its lines do not meet."""
        if len(parts) == 1:
            return self.objects[parts[0]].values
        if parts not in self._values:
            self._values[parts] = self._combine(parts, similarity)
        return self._values[parts]

    def _combine(self, parts: Parts, similarity: Similarity) -> tuple[Any, ...] | None:
        """Combine the parts from the first one on, each with a combined neighbour."""
        values, remaining = self.objects[parts[0]].values, list(parts[1:])
        while remaining:
            for at in remaining:
                joined = similarity.combine(values, self.objects[at].values)
                if joined is not None:
                    break
            else:
                return None
            values = joined
            remaining.remove(at)
        return values


@dataclass(slots=True)
class _Pair:
    """A candidate or an aggregation.

    Attributes:
        attributes: The weighted similarity without the relational term.
        version: The number of its entries in the queue; only the last entry is valid.
        larger: Its aggregation; while that is a candidate, the pair gets no other aggregation.
    """

    terms: tuple[float, ...]
    attributes: float
    relational: float = 0.0
    version: int = 0
    larger: Ends | None = None


@dataclass(slots=True)
class _Sample:
    """Reported candidates, chosen by similarity or at regular intervals."""

    uncertain: list[tuple[float, Ends]] = field(default_factory=list)
    terms: list[tuple[float, ...]] = field(default_factory=list)
    seen: int = 0
    stride: int = 1

    def add(self, ends: Ends, pair: _Pair, distance: float) -> None:
        entry = (distance, ends)
        if len(self.uncertain) < _UNCERTAIN_PAIRS or entry < self.uncertain[-1]:
            insort(self.uncertain, entry)
            del self.uncertain[_UNCERTAIN_PAIRS:]
        if self.seen % self.stride == 0:
            self.terms.append(pair.terms)
        self.seen += 1
        if len(self.terms) > _SAMPLE_PAIRS:
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
        self._pairs_of: tuple[defaultdict[int, set[Ends]], defaultdict[int, set[Ends]]] = (
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
        """Confirm the decided links, before any pair is measured."""
        decided_groups: defaultdict[str, tuple[list[int], list[int]]] = defaultdict(
            lambda: ([], [])
        )
        for number, side in enumerate((self._left, self._right)):
            for at, obj in enumerate(side.objects):
                if obj.link is not None:
                    decided_groups[obj.link][number].append(at)
        for _, (left, right) in sorted(decided_groups.items()):
            ends = tuple(left), tuple(right)
            self._link(ends)
            ids = self._left.ids(ends[0]), self._right.ids(ends[1])
            self._links.append(Link(*ids, 0.0, {}, decided=True))

    def _collect(self) -> int:
        """Queue the candidates; return their number."""
        left, right = self._left, self._right
        for one, other in candidates(left.objects, right.objects, self._spec):
            if one in left.link or other in right.link:
                continue
            ends: Ends = (one,), (other,)
            if pair := self._measure(ends):
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
        """The threshold of attributes, if relations agree as much as attributes."""
        return self._spec.threshold * (1 - self._spec.relational)

    def _measure(self, ends: Ends) -> _Pair | None:
        """Measure a pair; None: a constraint forbids it, or its aggregation is impossible."""
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
        for pairs_of, parts in zip(self._pairs_of, ends, strict=True):
            for at in parts:
                pairs_of[at].add(ends)

    def _relational(self, ends: Ends) -> float:
        """Return the share of linked pairs among pairs of neighbours that are or may be linked."""
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
        """Queue the best aggregation of a pair with a neighbour; return whether one is better.

        Only the best is queued: otherwise all connected subsets of a neighbourhood would be.
        """
        if pair.larger in self._pairs:
            return False
        options = [(larger, new) for larger in self._larger(ends) if (new := self._new(larger))]
        if not options:
            return False
        best, larger = min(options, key=lambda item: (-self._total(item[1]), item[0]))
        if self._total(larger) <= similarity:
            return False
        self._pairs[best], pair.larger = larger, best
        self._hold(best)
        self._push(best, larger)
        self._aggregations += 1
        return True

    def _new(self, ends: Ends) -> _Pair | None:
        """Measure a pair that is not a candidate yet."""
        if ends in self._pairs or (pair := self._measure(ends)) is None:
            return None
        pair.relational = self._relational(ends)
        return pair

    def _larger(self, ends: Ends) -> Iterator[Ends]:
        left, right = ends
        if len(left) < _MAX_PARTS:
            yield from ((tuple(sorted((*left, at))), right) for at in self._left.free(left))
        if len(right) < _MAX_PARTS:
            yield from ((left, tuple(sorted((*right, at)))) for at in self._right.free(right))

    def _confirm(self, ends: Ends, pair: _Pair) -> None:
        self._link(ends)
        terms_by_label = dict(zip(self._similarity.labels, pair.terms, strict=True))
        if self._spec.relational:
            terms_by_label["relational"] = pair.relational
        ids = self._left.ids(ends[0]), self._right.ids(ends[1])
        self._links.append(Link(*ids, self._total(pair), terms_by_label))
        for pairs_of, parts in zip(self._pairs_of, ends, strict=True):
            for at in parts:
                for removed in list(pairs_of[at]):
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
        for pairs_of, parts in zip(self._pairs_of, ends, strict=True):
            for at in parts:
                pairs_of[at].discard(ends)
        (left, *more_left), (right, *more_right) = ends
        if not more_left and not more_right:
            self._partners[left].discard(right)

    def _recalculate(self, ends: Ends) -> None:
        """Update the relational term of pairs of neighbours."""
        if not self._spec.relational:
            return
        ours, theirs = self._left.around(ends[0]), self._right.around(ends[1])
        near = {pair for at in ours for pair in self._pairs_of[0][at]}
        for pair_ends in sorted(near & {pair for at in theirs for pair in self._pairs_of[1][at]}):
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
            terms_by_label = dict(zip(self._similarity.labels, terms, strict=True))
            yield Uncertain(one, other, self._similarity.weighted(terms), terms_by_label)
