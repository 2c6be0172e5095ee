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

MAX_CANDIDATES: Final = 10
"""Maximum candidates for each concept of the left."""

_THRESHOLDS: Final = (-1.0, -2.0, -2.5, -3.0, -3.0)
"""Minimum bits of the pairs that train the translations, by round."""
_SYNONYM: Final = 0.5
"""Cost in bits of a label that is not preferred."""
_STRUCTURE: Final = 1.5
"""Bits for a pair whose ancestors correspond, and against a pair whose ancestors do not."""
_MAX_STEPS: Final = 3
"""Maximum steps to an ancestor, by is-a and part-of."""
_MIN_BITS: Final = -8.0
_OFFSET: Final = 1.0
"""Bits added to all candidates, calibrated by pairs of known truth."""
_MAX_PATHS: Final = 3
_REPORT_INTERVAL: Final = 20_000
"""Pairs between two reports of progress."""
_ROUNDS: Final = len(_THRESHOLDS) + 1


@dataclass(frozen=True, slots=True)
class _Pair:
    bits: float
    left: Label
    right: Label


_Pairs = Mapping[tuple[int, int], _Pair]


class _Side:
    """An ontology by numbers, with the labels of all concepts in sequence."""

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
        """The ancestors of each concept, by is-a and part-of; a cycle ends at its start."""
        direct = [
            [self._numbers[parent] for parent in (*concept.parents, *concept.wholes)]
            for concept in self.concepts
        ]
        return [self._upward(number, direct) for number in range(len(direct))]

    @staticmethod
    def _upward(number: int, direct: Sequence[Sequence[int]]) -> frozenset[int]:
        ancestors: set[int] = set()
        last = {number}
        for _ in range(_MAX_STEPS):
            last = {up for node in last for up in direct[node]} - ancestors - {number}
            ancestors |= last
        return frozenset(ancestors)

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
    min_score: float = 0.6,
    accepted: Iterable[tuple[str, str]] = (),
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Iterator[Candidate]:
    """Yield the best candidates of each concept on the left, best first.

    Args:
        min_score: The minimum score of a path in the background graph.
        accepted: Pairs that users accepted; they train the translations in every round.
        progress: Called with finished and total steps: labels looked up, pairs of all rounds,
            concepts whose relations are looked up. It can raise to end the search.
    """
    texts = (text for side in (left, right) for concept in side.values() for text in concept.labels)
    words = Labels(texts)
    left_side, right_side = (_Side(side, words) for side in (left, right))
    senses = Senses(background, words)
    # Both sides: senses and their synonyms; the left: its label pairs and its relations.
    other_steps = 3 * len(left_side.labels) + 2 * len(right_side.labels) + len(left_side.concepts)
    steps = Steps(progress, other_steps + _ROUNDS * NEAREST * len(left_side.labels))
    shared = SharedSenses(
        senses, (left_side.labels, left_side.owners), (right_side.labels, right_side.owners), steps
    )
    pairs = [*label_pairs(left_side.labels, right_side.labels, steps), *shared.pairs.values()]
    steps.total = other_steps + _ROUNDS * len(pairs)
    translations = Translations((*left_side.labels, *right_side.labels))
    accepted_pairs = frozenset(accepted)
    lessons = [
        *_lessons(accepted_pairs, left_side, right_side),
        *senses.lessons(left_side.labels, right_side.labels, steps),
    ]
    candidates: _Pairs = {}
    selected: dict[int, int] = {}
    compare = _Comparison(left_side, right_side, shared, translations, steps)
    for threshold in (*_THRESHOLDS, None):
        candidates = _with_structure(compare.all_of(pairs), left_side, right_side, selected)
        if threshold is not None:
            selected = _select(candidates, threshold)
            learned = [candidates[pair] for pair in selected.items()]
            translations.learn([*lessons, *((pair.left, pair.right) for pair in learned)])
    yield from _equal(candidates, left_side, right_side, shared)
    yield from _stated_relations(
        left_side, shared, _Relations(_owners(right_side), senses, background, min_score), steps
    )


def _lessons(
    accepted: frozenset[tuple[str, str]], left_side: _Side, right_side: _Side
) -> Iterator[tuple[Label, Label]]:
    first = [_first_labels(side) for side in (left_side, right_side)]
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
    """Compares pairs of labels, with the current translations."""

    left_side: _Side
    right_side: _Side
    shared: SharedSenses
    translations: Translations
    steps: Steps

    def all_of(self, pairs: Sequence[tuple[int, int]]) -> _Pairs:
        """Return the best pair of labels of each pair of concepts."""
        best: dict[tuple[int, int], _Pair] = {}
        for left, right in self.steps.over(pairs, _REPORT_INTERVAL):
            owners = self.left_side.owners[left], self.right_side.owners[right]
            pair = self._of_labels(left, right, owners)
            is_candidate = pair.bits >= _MIN_BITS or owners in self.shared.pairs
            if is_candidate and (owners not in best or pair.bits > best[owners].bits):
                best[owners] = pair
        return {
            owners: _Pair(self.shared.weigh(pair.bits, owners), pair.left, pair.right)
            for owners, pair in best.items()
        }

    def _of_labels(self, left: int, right: int, owners: tuple[int, int]) -> _Pair:
        labels = self.left_side.labels[left], self.right_side.labels[right]
        above = self.left_side.words_above[owners[0]], self.right_side.words_above[owners[1]]
        cost = self.left_side.costs[left] + self.right_side.costs[right]
        return _Pair(self.translations.bits(*labels, *above) - cost, *labels)


def _with_structure(
    pairs: _Pairs, left_side: _Side, right_side: _Side, selected: Mapping[int, int]
) -> _Pairs:
    """Add the evidence of the correspondences above a pair."""
    if not selected:
        return pairs
    reached = frozenset(selected.values())
    return {
        (left, right): _Pair(
            pair.bits
            + _structure(left_side.above[left], right_side.above[right], selected, reached),
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


def _select(pairs: _Pairs, threshold: float) -> dict[int, int]:
    weighted = [(pair.bits, *owners) for owners, pair in pairs.items() if pair.bits >= threshold]
    return dict(one_to_one(weighted))


def _equal(
    pairs: _Pairs, left_side: _Side, right_side: _Side, shared: SharedSenses
) -> Iterator[Candidate]:
    of_left: dict[int, list[tuple[float, int]]] = defaultdict(list)
    for (left, right), pair in pairs.items():
        of_left[left].append((-pair.bits, right))
    for left in sorted(of_left):
        for _, right in sorted(of_left[left])[:MAX_CANDIDATES]:
            pair = pairs[left, right]
            elements = left_side.concepts[left].identifier, right_side.concepts[right].identifier
            reasons = _reason(pair), shared.reason((left, right))
            evidence = tuple(reason for reason in reasons if reason)
            yield Candidate(*elements, pair.bits + _OFFSET, Relation.EQUAL, evidence)


def _reason(pair: _Pair) -> str:
    if pair.left == pair.right:
        return f"both have the label “{' '.join(pair.left)}”"
    return f"“{' '.join(pair.left)}” and “{' '.join(pair.right)}” differ as other pairs do"


def _owners(side: _Side) -> Mapping[Label, str]:
    """Return the first concept of each label."""
    owners = zip(reversed(side.labels), reversed(side.owners), strict=True)
    return {label: side.concepts[owner].identifier for label, owner in owners}


@dataclass(frozen=True, slots=True)
class _Relations:
    """The background's relations between senses and concepts of the right, besides equality.

    Each sense is looked up once, however many concepts have it; so are the labels of terms.
    """

    owners: Mapping[Label, str]
    senses: Senses
    background: Background
    min_score: float
    _cache: dict[str, Sequence[tuple[str, Path]]] = field(default_factory=dict, init=False)
    _targets: dict[str, str] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        for label, owner in self.owners.items():
            self._targets.update(dict.fromkeys(self.senses.terms(label), owner))

    def of(self, sense: str) -> Sequence[tuple[str, Path]]:
        """Return a sense's best concepts: no others are among the best of a concept's senses."""
        if sense not in self._cache:
            self._cache[sense] = _best_paths(self._find(sense))
        return self._cache[sense]

    def _find(self, sense: str) -> Iterator[tuple[str, Path]]:
        for term, path in self.background.reachable(sense, min_score=self.min_score):
            if path.relation is not Relation.EQUAL and term in self._targets:
                yield self._targets[term], path


def _best_paths(paths: Iterable[tuple[str, Path]]) -> Sequence[tuple[str, Path]]:
    """Return the best paths, one per concept; ties to one concept keep the first path."""
    best: dict[str, Path] = {}
    for target, path in paths:
        if target not in best or path.bits > best[target].bits:
            best[target] = path
    return sorted(best.items(), key=lambda item: (-item[1].bits, item[0]))[:_MAX_PATHS]


def _stated_relations(
    left_side: _Side, shared: SharedSenses, relations: _Relations, steps: Steps
) -> Iterator[Candidate]:
    """Yield relations that the background states between senses; equal senses are not included."""
    for number in steps.over(range(len(left_side.concepts)), _REPORT_INTERVAL):
        paths: list[tuple[str, Path]] = []
        for sense in shared.of_left(number):
            paths += relations.of(sense)
            steps.add()
        for target, path in _best_paths(paths):
            reason = f"the background says {path.relation}: {path}"
            identifier = left_side.concepts[number].identifier
            yield Candidate(identifier, target, path.bits, path.relation, (reason,))
