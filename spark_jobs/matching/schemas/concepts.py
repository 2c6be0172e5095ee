"""Candidates among the concepts of two ontologies: labels, structure, background."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from spark_jobs.matching.schemas.assignment import one_to_one
from spark_jobs.matching.schemas.background import Background, Path
from spark_jobs.matching.schemas.elements import Candidate
from spark_jobs.matching.schemas.labels import NEAREST, Labels, label_pairs
from spark_jobs.matching.schemas.ontologies import Concept, Ontology
from spark_jobs.matching.schemas.relations import Relation
from spark_jobs.matching.schemas.senses import Senses, SharedSenses
from spark_jobs.matching.schemas.steps import Steps
from spark_jobs.matching.schemas.translations import Label, Translations

__all__ = ["concept_candidates"]

KEPT: Final = 10
"""Candidates that are kept for each concept of the left."""

_THRESHOLDS: Final = (-1.0, -2.0, -2.5, -3.0, -3.0)
"""Bits from which on pairs teach the translations, round by round."""
_SYNONYM: Final = 0.5
"""Bits that it costs that a label is not the preferred one."""
_STRUCTURE: Final = 1.5
"""Bits for a pair of which something above corresponds; against one of which nothing does."""
_ABOVE: Final = 3
"""Steps upward, by is-a and part-of, that count as above."""
_LEAST: Final = -8.0
_OFFSET: Final = 1.0
"""Bits that make the confidences of all candidates those that pairs of known truth have."""
_MOST_PATHS: Final = 3
_REPORTED: Final = 20_000
"""Pairs between two reports of progress."""
_ROUNDS: Final = len(_THRESHOLDS) + 1


@dataclass(frozen=True, slots=True)
class _Pair:
    bits: float
    left: Label
    right: Label


_Pairs = Mapping[tuple[int, int], _Pair]


class _Side:
    """An ontology by numbers: labels of all concepts one after the other."""

    def __init__(self, ontology: Ontology, words: Labels) -> None:
        self.concepts: Sequence[Concept] = list(ontology.values())
        self.labels: list[Label] = []
        self.owners: list[int] = []
        self.costs: list[float] = []
        for number, concept in enumerate(self.concepts):
            self._add(number, concept, words)
        self._numbers = {concept.identifier: n for n, concept in enumerate(self.concepts)}

    def _add(self, number: int, concept: Concept, words: Labels) -> None:
        seen: set[Label] = set()
        for position, text in enumerate(concept.labels):
            label = words.label(text)
            if label and label not in seen:
                seen.add(label)
                self.labels.append(label)
                self.owners.append(number)
                self.costs.append(0.0 if position < concept.preferred else _SYNONYM)

    @cached_property
    def above(self) -> Sequence[frozenset[int]]:
        """What each concept is or is part of, some steps upward; a cycle ends where it began."""
        direct = [
            [self._numbers[one] for one in (*concept.parents, *concept.wholes)]
            for concept in self.concepts
        ]
        return [self._upward(number, direct) for number in range(len(direct))]

    @staticmethod
    def _upward(number: int, direct: Sequence[Sequence[int]]) -> frozenset[int]:
        found: set[int] = set()
        last = {number}
        for _ in range(_ABOVE):
            last = {up for one in last for up in direct[one]} - found - {number}
            found |= last
        return frozenset(found)

    @cached_property
    def words_above(self) -> Sequence[frozenset[str]]:
        words: dict[int, set[str]] = defaultdict(set)
        for owner, label in zip(self.owners, self.labels, strict=True):
            words[owner].update(label)
        return [frozenset(word for up in ups for word in words[up]) for ups in self.above]


def concept_candidates(
    left: Ontology,
    right: Ontology,
    background: Background,
    *,
    least: float = 0.6,
    accepted: Iterable[tuple[str, str]] = (),
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Iterator[Candidate]:
    """Yield the best candidates of each concept on the left, best first.

    Args:
        least: The score of a path in the background graph.
        accepted: Pairs that people accepted; they teach the translations in every round.
        progress: Is called with what is done, and all of it: labels that are looked up, pairs of
            all rounds, concepts whose relations are. It may raise, which ends the search.
    """
    texts = (text for side in (left, right) for each in side.values() for text in each.labels)
    words = Labels(texts)
    one, other = (_Side(side, words) for side in (left, right))
    senses = Senses(background, words)
    # Of both sides senses and what they teach, of the left its pairs and its relations.
    others = 3 * len(one.labels) + 2 * len(other.labels) + len(one.concepts)
    steps = Steps(progress, others + _ROUNDS * NEAREST * len(one.labels))
    shared = SharedSenses(senses, (one.labels, one.owners), (other.labels, other.owners), steps)
    pairs = [*label_pairs(one.labels, other.labels, steps), *shared.pairs.values()]
    steps.total = others + _ROUNDS * len(pairs)
    translations = Translations((*one.labels, *other.labels))
    known = frozenset(accepted)
    taught = [*_taught(known, one, other), *senses.taught(one.labels, other.labels, steps)]
    found: _Pairs = {}
    selected: dict[int, int] = {}
    compare = _Comparison(one, other, shared, translations, steps)
    for threshold in (*_THRESHOLDS, None):
        found = _with_structure(compare.all_of(pairs), one, other, selected)
        if threshold is not None:
            selected = _selected(found, threshold)
            learned = [found[pair] for pair in selected.items()]
            translations.learn([*taught, *((each.left, each.right) for each in learned)])
    yield from _equal(found, one, other, shared)
    yield from _stated(one, shared, _Relations(_owners(other), senses, background, least), steps)


def _taught(
    accepted: frozenset[tuple[str, str]], one: _Side, other: _Side
) -> Iterator[tuple[Label, Label]]:
    first = [_first_labels(side) for side in (one, other)]
    for left, right in sorted(accepted):
        if left in first[0] and right in first[1]:
            yield first[0][left], first[1][right]


def _first_labels(side: _Side) -> dict[str, Label]:
    labels: dict[str, Label] = {}
    for owner, label in zip(side.owners, side.labels, strict=True):
        labels.setdefault(side.concepts[owner].identifier, label)
    return labels


@dataclass(frozen=True, slots=True)
class _Comparison:
    """Compares pairs of labels, with the present translations."""

    one: _Side
    other: _Side
    shared: SharedSenses
    translations: Translations
    steps: Steps

    def all_of(self, pairs: Sequence[tuple[int, int]]) -> _Pairs:
        """Return the best labels of each pair of concepts."""
        found: dict[tuple[int, int], _Pair] = {}
        for left, right in self.steps.over(pairs, _REPORTED):
            owners = self.one.owners[left], self.other.owners[right]
            pair = self._of_labels(left, right, owners)
            kept = pair.bits >= _LEAST or owners in self.shared.pairs
            if kept and (owners not in found or pair.bits > found[owners].bits):
                found[owners] = pair
        return {
            owners: _Pair(self.shared.weighed(pair.bits, owners), pair.left, pair.right)
            for owners, pair in found.items()
        }

    def _of_labels(self, left: int, right: int, owners: tuple[int, int]) -> _Pair:
        labels = self.one.labels[left], self.other.labels[right]
        above = self.one.words_above[owners[0]], self.other.words_above[owners[1]]
        cost = self.one.costs[left] + self.other.costs[right]
        return _Pair(self.translations.bits(*labels, *above) - cost, *labels)


def _with_structure(pairs: _Pairs, one: _Side, other: _Side, selected: Mapping[int, int]) -> _Pairs:
    """Add what the correspondences above a pair say."""
    if not selected:
        return pairs
    reached = frozenset(selected.values())
    return {
        (left, right): _Pair(
            pair.bits + _structure(one.above[left], other.above[right], selected, reached),
            pair.left,
            pair.right,
        )
        for (left, right), pair in pairs.items()
    }


def _structure(
    left: frozenset[int],
    right: frozenset[int],
    selected: Mapping[int, int],
    reached: frozenset[int],
) -> float:
    images = {selected[up] for up in left if up in selected}
    if images & right:
        return _STRUCTURE
    return -_STRUCTURE if images and reached & right else 0.0


def _selected(pairs: _Pairs, threshold: float) -> dict[int, int]:
    weighed = [(pair.bits, *owners) for owners, pair in pairs.items() if pair.bits >= threshold]
    return dict(one_to_one(weighed))


def _equal(pairs: _Pairs, one: _Side, other: _Side, shared: SharedSenses) -> Iterator[Candidate]:
    of_left: dict[int, list[tuple[float, int]]] = defaultdict(list)
    for (left, right), pair in pairs.items():
        of_left[left].append((-pair.bits, right))
    for left in sorted(of_left):
        for _, right in sorted(of_left[left])[:KEPT]:
            pair = pairs[left, right]
            elements = one.concepts[left].identifier, other.concepts[right].identifier
            reasons = _reason(pair), shared.reason((left, right))
            evidence = tuple(reason for reason in reasons if reason)
            yield Candidate(*elements, pair.bits + _OFFSET, Relation.EQUAL, evidence)


def _reason(pair: _Pair) -> str:
    if pair.left == pair.right:
        return f"both have the label “{' '.join(pair.left)}”"
    return f"“{' '.join(pair.left)}” and “{' '.join(pair.right)}” differ as other pairs do"


def _owners(side: _Side) -> Mapping[Label, str]:
    """The first concept that has a label."""
    owners = zip(reversed(side.labels), reversed(side.owners), strict=True)
    return {label: side.concepts[owner].identifier for label, owner in owners}


@dataclass(frozen=True, slots=True)
class _Relations:
    """What the background states between senses and concepts of the right, besides equality.

    Each sense is looked up once, however many concepts have it, and so are labels of terms.
    """

    owners: Mapping[Label, str]
    senses: Senses
    background: Background
    least: float
    _known: dict[str, Sequence[tuple[str, Path]]] = field(default_factory=dict, init=False)
    _targets: dict[str, str] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        for label, owner in self.owners.items():
            self._targets.update(dict.fromkeys(self.senses.terms(label), owner))

    def of(self, sense: str) -> Sequence[tuple[str, Path]]:
        """Return the best concepts: no other one is among the best of all senses of a concept."""
        if sense not in self._known:
            self._known[sense] = _ranked(self._stated(sense))
        return self._known[sense]

    def _stated(self, sense: str) -> Iterator[tuple[str, Path]]:
        for term, path in self.background.reachable(sense, least=self.least):
            if path.relation is not Relation.EQUAL and term in self._targets:
                yield self._targets[term], path


def _ranked(found: Iterable[tuple[str, Path]]) -> Sequence[tuple[str, Path]]:
    """The best paths, each to another concept; of equal ones to one concept the first."""
    best: dict[str, Path] = {}
    for target, path in found:
        if target not in best or path.bits > best[target].bits:
            best[target] = path
    return sorted(best.items(), key=lambda each: (-each[1].bits, each[0]))[:_MOST_PATHS]


def _stated(
    one: _Side, shared: SharedSenses, relations: _Relations, steps: Steps
) -> Iterator[Candidate]:
    """Relations that the background states between senses; equality is that of senses."""
    for number in steps.over(range(len(one.concepts)), _REPORTED):
        found: list[tuple[str, Path]] = []
        for sense in shared.of_left(number):
            found += relations.of(sense)
            steps.add()
        for target, path in _ranked(found):
            reason = f"the background says {path.relation}: {path}"
            identifier = one.concepts[number].identifier
            yield Candidate(identifier, target, path.bits, path.relation, (reason,))
