"""Background knowledge: a graph of terms with typed relations, searched by sets of neighbours.

The mechanism is SemRep's (Arnold and Rahm, BTW 2015). A relation is stored at both of its terms, in
its direction and its inverse, so a path is found where the neighbours of its ends meet, without a
walk through the graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.matching.schemas.relations import (
    INVERSE,
    RELATED_COST,
    Relation,
    compose,
    type_confidence,
)
from spark_jobs.matching.schemas.words import words_of
from spark_jobs.runner.port import InputUnfit

if TYPE_CHECKING:  # tables need no rdflib
    from spark_jobs.matching.schemas.ontologies import Concept

__all__ = ["Background", "Path", "Statement", "parse_statement"]

MAX_STATEMENTS: Final = 1_000_000
MAX_NEIGHBOURS: Final = 1_000
"""Maximum neighbours of an inner term of a path: general terms, such as `entity`, have more."""
_BITS: Final = 10.0
_Neighbours = Mapping[str, Mapping[Relation, float]]


@dataclass(frozen=True, slots=True)
class Statement:
    """A stated relation.

    Attributes:
        confidence: The confidence in its source, from 0 to 1.
    """

    source: str
    target: str
    relation: Relation
    confidence: float = 1.0


@dataclass(frozen=True, slots=True)
class Path:
    """The relation of two terms, with the path that gives it.

    Attributes:
        score: Product of the confidences in relations and their types, from 0 to 1.
        terms: The terms along the path, from the first to the second.
    """

    relation: Relation
    score: float
    terms: tuple[str, ...]

    @property
    def bits(self) -> float:
        """The evidence of the path; a score of one half is no evidence."""
        return _BITS * (self.score - 0.5)

    def __str__(self) -> str:
        return " > ".join(self.terms)


class Background:
    """A graph of terms. Terms are compared as words, without regard to case and punctuation.

    Concepts of ontologies are separate nodes, equal to each of their names, so a synonym of two
    concepts does not make them equal. The key of such a node is the unchanged identifier, which
    differs from any term, because terms have no punctuation.

    Attributes:
        concepts: The identifiers of concepts.
    """

    def __init__(self, statements: Iterable[Statement] = ()) -> None:
        self._neighbours: dict[str, dict[str, dict[Relation, float]]] = {}
        self.concepts: set[str] = set()
        for statement in statements:
            self.add(statement)

    def __len__(self) -> int:
        return len(self._neighbours)

    def __contains__(self, term: str) -> bool:
        return term in self._neighbours

    @property
    def terms(self) -> Iterator[str]:
        """All terms, without concepts."""
        return (node for node in self._neighbours if node not in self.concepts)

    def add(self, statement: Statement) -> None:
        """Store a relation and its inverse; of several statements the most confident wins."""
        source, target = _term(statement.source), _term(statement.target)
        self._relate(source, target, statement.relation, statement.confidence)

    def add_concept(self, concept: Concept) -> None:
        """Store the statements of an ontology about a concept: its names, parents and wholes."""
        self.concepts.add(concept.identifier)
        for label in concept.labels:
            self._relate(concept.identifier, _term(label), Relation.EQUAL)
        for parent in concept.parents:
            self._relate(concept.identifier, parent, Relation.IS_A)
        for whole in concept.wholes:
            self._relate(concept.identifier, whole, Relation.PART_OF)

    def _relate(
        self, source: str, target: str, relation: Relation, confidence: float = 1.0
    ) -> None:
        if not source or not target or source == target:
            return
        score = confidence * type_confidence(relation)
        self._store(source, target, relation, score)
        self._store(target, source, INVERSE[relation], score)

    def _store(self, source: str, target: str, relation: Relation, score: float) -> None:
        scores = self._neighbours.setdefault(source, {}).setdefault(target, {})
        scores[relation] = max(score, scores.get(relation, 0.0))

    def _key(self, text: str) -> str:
        return text if text in self.concepts else _term(text)

    def _equal(self, key: str) -> Iterator[str]:
        return (
            other for other, relations in self._near(key).items() if Relation.EQUAL in relations
        )

    def senses(self, term: str) -> frozenset[str]:
        """Return a term or concept of the graph, and all that is stated to be equal to it.

        A general term, with too many neighbours, is equal only to itself.
        """
        key = self._key(term)
        return frozenset((key, *self._equal(key)) if key in self else ())

    def equal_terms(self, term: str) -> tuple[str, ...]:
        """Return the terms that are stated to be equal to a term, or that name the same concept."""
        key = self._key(term)
        equal = set(self._equal(key))
        names = {name for concept in equal & self.concepts for name in self._equal(concept)}
        return tuple(sorted((equal | names) - self.concepts - {key}))

    def reachable(self, term: str, *, min_score: float) -> Iterator[tuple[str, Path]]:
        """Yield the terms at most two relations away, with the best path to each."""
        start = self._key(term)
        paths: dict[str, Path] = {}
        for path in chain(self._one_step(start), self._two_steps(start)):
            best = paths.get(path.terms[-1])
            if path.score >= min_score and (best is None or _rank(path) < _rank(best)):
                paths[path.terms[-1]] = path
        yield from sorted(paths.items())

    def query(self, a: str, b: str, *, max_length: int = 2, min_score: float = 0.6) -> Path | None:
        """Return how `a` relates to `b`, or None.

        Args:
            max_length: Maximum relations of a path, up to 4. A shorter path is always preferred.
            min_score: The minimum score of the path.
        """
        first, second = _term(a), _term(b)
        if not first or not second:
            return None
        if first == second:
            return Path(Relation.EQUAL, 1.0, (first,))
        if first in self and second in self:
            path = self._search(first, second, max_length, min_score)
            return path or self._of_known_compounds(first, second, max_length, min_score)
        return self._of_unknown(first, second, max_length, min_score)

    def _search(self, a: str, b: str, max_length: int, min_score: float) -> Path | None:
        for paths in (self._one, self._two, self._three, self._four)[:max_length]:
            valid = [path for path in paths(a, b) if path.score >= min_score]
            if valid:
                return min(valid, key=_rank)
        return None

    def _near(self, term: str) -> _Neighbours:
        """Return the neighbours of an inner term of a path; none for a general term."""
        near = self._neighbours.get(term, {})
        return near if len(near) <= MAX_NEIGHBOURS else {}

    def _one_step(self, term: str) -> Iterator[Path]:
        for other, relations in self._neighbours.get(term, {}).items():
            for relation, score in relations.items():
                yield Path(relation, score, (term, other))

    def _two_steps(self, term: str) -> Iterator[Path]:
        for path in self._one_step(term):
            for other, relations in self._near(path.terms[-1]).items():
                if other != term:
                    yield from _extend(path, other, relations)

    def _one(self, a: str, b: str) -> Iterator[Path]:
        for relation, score in self._neighbours[a].get(b, {}).items():
            yield Path(relation, score, (a, b))

    def _two(self, a: str, b: str) -> Iterator[Path]:
        for middle in filter(self._near, self._neighbours[a].keys() & self._neighbours[b].keys()):
            for relation, score in self._neighbours[a][middle].items():
                path = Path(relation, score, (a, middle))
                yield from _extend(path, b, self._neighbours[middle][b])

    def _three(self, a: str, b: str) -> Iterator[Path]:
        near = self._neighbours[b]
        for path in self._two_steps(a):
            last = path.terms[-1]
            if last in near and self._near(last) and b not in path.terms:
                yield from _extend(path, b, self._neighbours[path.terms[-1]][b])

    def _four(self, a: str, b: str) -> Iterator[Path]:
        """T'(a) ∩ T'(b); the half of `b` is reversed before it is appended."""
        halves: dict[str, list[str]] = {}
        for last in self._near(b):
            for middle in filter(self._near, self._near(last)):
                halves.setdefault(middle, []).append(last)
        for path in self._two_steps(a):
            for last in halves.get(path.terms[-1], ()):
                if last not in path.terms and b not in path.terms:
                    for longer in _extend(path, last, self._neighbours[path.terms[-1]][last]):
                        yield from _extend(longer, b, self._neighbours[last][b])

    def _of_unknown(self, a: str, b: str, max_length: int, min_score: float) -> Path | None:
        """Compare compounds missing in the graph by their heads, or by their differing words."""
        left, right = a.split(), b.split()
        for relation, one, other in (
            (Relation.IS_A, left, right),
            (Relation.INVERSE_IS_A, right, left),
        ):
            if one[-len(other) :] == other:  # kitchen chair, chair
                score = type_confidence(relation)
                return Path(relation, score, (a, b)) if score >= min_score else None
        if len(left) > 1 and len(right) > 1:
            if left[0] == right[0]:  # the same modifier
                rest = " ".join(left[1:]), " ".join(right[1:])
                if (
                    path := self.query(*rest, max_length=max_length, min_score=min_score)
                ) is not None:
                    return Path(path.relation, path.score, (a, *path.terms, b))
            if left[-1] == right[-1]:  # the same head
                return self._of_modifiers(left[:-1], right[:-1], max_length, min_score)
        return self._of_heads(self._known_head(a), self._known_head(b), a, b, max_length, min_score)

    def _of_modifiers(
        self, left: list[str], right: list[str], max_length: int, min_score: float
    ) -> Path | None:
        path = self.query(
            " ".join(left), " ".join(right), max_length=max_length, min_score=min_score
        )
        if path is None or path.relation not in _MODIFIER_RELATIONS:
            return None
        return path

    def _of_known_compounds(self, a: str, b: str, max_length: int, min_score: float) -> Path | None:
        for left, right in ((self._shorter(a), b), (a, self._shorter(b))):
            if (
                left
                and right
                and (path := self._of_heads(left, right, a, b, max_length, min_score))
            ):
                return path
        return None

    def _shorter(self, term: str) -> str | None:
        """Return a known term that remains of a compound without its first words."""
        _, _, rest = term.partition(" ")
        return self._known_head(rest) if rest else None

    def _known_head(self, term: str) -> str | None:
        words = term.split()
        endings = (" ".join(words[n:]) for n in range(len(words)))
        return next((ending for ending in endings if ending in self), None)

    def _of_heads(
        self, left: str | None, right: str | None, a: str, b: str, max_length: int, min_score: float
    ) -> Path | None:
        """Derive a compound's relation from its head's: a compound is-a its head."""
        if left is None or right is None:
            return None
        path: Path | None = Path(Relation.EQUAL, 1.0, (left,))
        if left != right:
            path = self._search(left, right, max_length, min_score)
        if path is None:
            return None
        relation: Relation | None = path.relation
        if left != a:
            relation = compose(Relation.IS_A, path.relation) if relation in INVERSE else None
        if relation is not None and right != b:
            relation = compose(relation, Relation.INVERSE_IS_A)
        if relation is None:
            return None
        derived = relation is Relation.RELATED and path.relation is not Relation.RELATED
        score = path.score - (RELATED_COST if derived else 0.0)
        terms = tuple(dict.fromkeys((a, *path.terms, b)))
        return Path(relation, score, terms) if score >= min_score else None


_MODIFIER_RELATIONS: Final = (Relation.EQUAL, Relation.IS_A, Relation.INVERSE_IS_A)
_ORDER: Final = tuple(Relation)


def _extend(path: Path, term: str, relations: Mapping[Relation, float]) -> Iterator[Path]:
    for next_relation, score in relations.items():
        relation = compose(path.relation, next_relation)
        if relation is not None:
            cost = RELATED_COST if relation is Relation.RELATED else 0.0
            yield Path(relation, path.score * score - cost, (*path.terms, term))


def _rank(path: Path) -> tuple[float, int, tuple[str, ...]]:
    return -path.score, _ORDER.index(path.relation), path.terms


def _term(text: str) -> str:
    return " ".join(words_of(text))


def parse_statement(row: Mapping[str, Any]) -> Statement:
    """Read a row of a background.

    Raises:
        InputUnfit: It is not a statement.
    """
    try:
        relation = Relation(row["relation"])
        confidence = float(row["confidence"])
    except (TypeError, ValueError):
        relation, confidence = Relation.RELATED, 0.0
    if (
        relation is Relation.RELATED
        or not 0 < confidence <= 1
        or not row["source"]
        or not row["target"]
    ):
        stored = ", ".join(known for known in Relation if known is not Relation.RELATED)
        raise InputUnfit(
            f"background: the row {row['id']} needs source, target, a relation ({stored}), "
            "and a confidence above 0, at most 1."
        )
    return Statement(str(row["source"]), str(row["target"]), relation, confidence)
