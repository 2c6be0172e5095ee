"""Background knowledge: a graph of terms with typed relations, searched by sets of neighbours.

The mechanism is SemRep's (Arnold and Rahm, BTW 2015). A relation is stored at both of its terms,
in its direction and its inverse, so that a path is found where the neighbours of its ends meet:
no search walks through the graph.
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

MOST_STATEMENTS: Final = 1_000_000
MOST_NEIGHBOURS: Final = 1_000
"""Neighbours of a term that a path may lead over: general terms, such as `entity`, have more."""
_BITS: Final = 10.0
_Neighbours = Mapping[str, Mapping[Relation, float]]


@dataclass(frozen=True, slots=True)
class Statement:
    """A relation that somebody states.

    Attributes:
        confidence: In whoever states it, from 0 to 1.
    """

    source: str
    target: str
    relation: Relation
    confidence: float = 1.0


@dataclass(frozen=True, slots=True)
class Path:
    """What two terms are to each other.

    Attributes:
        score: Product of the confidences in relations and their types, from 0 to 1.
        terms: Those along the path, from the first term to the second.
    """

    relation: Relation
    score: float
    terms: tuple[str, ...]

    @property
    def bits(self) -> float:
        """How far the path is to be believed; a score of one half is as good as none."""
        return _BITS * (self.score - 0.5)

    def __str__(self) -> str:
        return " > ".join(self.terms)


class Background:
    """A graph of terms. Terms are compared as words, without regard to case and punctuation.

    Concepts of ontologies are nodes of their own, which are equal to each of their names: so a
    synonym of two concepts does not make these equal. A node's key is the identifier as it is,
    which no term is like, as terms have no punctuation.

    Attributes:
        concepts: Their identifiers.
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
        """All that is no concept."""
        return (node for node in self._neighbours if node not in self.concepts)

    def add(self, statement: Statement) -> None:
        """Store a relation and its inverse; of several statements the most confident counts."""
        source, target = _term(statement.source), _term(statement.target)
        self._relate(source, target, statement.relation, statement.confidence)

    def add_concept(self, concept: Concept) -> None:
        """Store what an ontology states of a concept: its names, what it is and is part of."""
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
        return (other for other, found in self._near(key).items() if Relation.EQUAL in found)

    def senses(self, term: str) -> frozenset[str]:
        """Return what a term or a concept is stated to be equal to, and itself, if it is known.

        A general term, with too many neighbours, is equal to itself only.
        """
        key = self._key(term)
        return frozenset((key, *self._equal(key)) if key in self else ())

    def equal_terms(self, term: str) -> tuple[str, ...]:
        """Return the terms that are stated to be equal to one, or to name one concept with it."""
        key = self._key(term)
        equal = set(self._equal(key))
        names = {name for one in equal & self.concepts for name in self._equal(one)}
        return tuple(sorted((equal | names) - self.concepts - {key}))

    def reachable(self, term: str, *, least: float) -> Iterator[tuple[str, Path]]:
        """Yield the terms at most two relations away, with the best path to each."""
        start = self._key(term)
        found: dict[str, Path] = {}
        for path in chain(self._direct(start), self._over_one(start)):
            best = found.get(path.terms[-1])
            if path.score >= least and (best is None or _rank(path) < _rank(best)):
                found[path.terms[-1]] = path
        yield from sorted(found.items())

    def query(self, a: str, b: str, *, longest: int = 2, least: float = 0.6) -> Path | None:
        """Return how `a` relates to `b`, or None.

        Args:
            longest: Relations on a path, 4 at most. A shorter path is preferred to any longer one.
            least: The score that the path must have.
        """
        first, second = _term(a), _term(b)
        if not first or not second:
            return None
        if first == second:
            return Path(Relation.EQUAL, 1.0, (first,))
        if first in self and second in self:
            found = self._search(first, second, longest, least)
            return found or self._of_known_compounds(first, second, longest, least)
        return self._of_unknown(first, second, longest, least)

    def _search(self, a: str, b: str, longest: int, least: float) -> Path | None:
        for paths in (self._one, self._two, self._three, self._four)[:longest]:
            valid = [path for path in paths(a, b) if path.score >= least]
            if valid:
                return min(valid, key=_rank)
        return None

    def _near(self, term: str) -> _Neighbours:
        """Return the neighbours of a term that a path may lead over; none of a general term."""
        near = self._neighbours.get(term, {})
        return near if len(near) <= MOST_NEIGHBOURS else {}

    def _direct(self, term: str) -> Iterator[Path]:
        for other, found in self._neighbours.get(term, {}).items():
            for relation, score in found.items():
                yield Path(relation, score, (term, other))

    def _over_one(self, term: str) -> Iterator[Path]:
        for path in self._direct(term):
            for other, found in self._near(path.terms[-1]).items():
                if other != term:
                    yield from _extended(path, other, found)

    def _one(self, a: str, b: str) -> Iterator[Path]:
        for relation, score in self._neighbours[a].get(b, {}).items():
            yield Path(relation, score, (a, b))

    def _two(self, a: str, b: str) -> Iterator[Path]:
        for middle in filter(self._near, self._neighbours[a].keys() & self._neighbours[b].keys()):
            for relation, score in self._neighbours[a][middle].items():
                path = Path(relation, score, (a, middle))
                yield from _extended(path, b, self._neighbours[middle][b])

    def _three(self, a: str, b: str) -> Iterator[Path]:
        near = self._neighbours[b]
        for path in self._over_one(a):
            last = path.terms[-1]
            if last in near and self._near(last) and b not in path.terms:
                yield from _extended(path, b, self._neighbours[path.terms[-1]][b])

    def _four(self, a: str, b: str) -> Iterator[Path]:
        """T'(a) ∩ T'(b); the half of `b` is turned around before it is appended."""
        halves: dict[str, list[str]] = {}
        for last in self._near(b):
            for middle in filter(self._near, self._near(last)):
                halves.setdefault(middle, []).append(last)
        for path in self._over_one(a):
            for last in halves.get(path.terms[-1], ()):
                if last not in path.terms and b not in path.terms:
                    for longer in _extended(path, last, self._neighbours[path.terms[-1]][last]):
                        yield from _extended(longer, b, self._neighbours[last][b])

    def _of_unknown(self, a: str, b: str, longest: int, least: float) -> Path | None:
        """Compare compounds that the graph lacks by their heads, or by what differs."""
        left, right = a.split(), b.split()
        for relation, one, other in (
            (Relation.IS_A, left, right),
            (Relation.INVERSE_IS_A, right, left),
        ):
            if one[-len(other) :] == other:  # kitchen chair, chair
                score = type_confidence(relation)
                return Path(relation, score, (a, b)) if score >= least else None
        if len(left) > 1 and len(right) > 1:
            if left[0] == right[0]:  # the same modifier
                rest = " ".join(left[1:]), " ".join(right[1:])
                if (found := self.query(*rest, longest=longest, least=least)) is not None:
                    return Path(found.relation, found.score, (a, *found.terms, b))
            if left[-1] == right[-1]:  # the same head
                return self._of_modifiers(left[:-1], right[:-1], longest, least)
        return self._of_heads(self._known_head(a), self._known_head(b), a, b, longest, least)

    def _of_modifiers(
        self, left: list[str], right: list[str], longest: int, least: float
    ) -> Path | None:
        found = self.query(" ".join(left), " ".join(right), longest=longest, least=least)
        if found is None or found.relation not in _OF_MODIFIERS:
            return None
        return found

    def _of_known_compounds(self, a: str, b: str, longest: int, least: float) -> Path | None:
        for left, right in ((self._shorter(a), b), (a, self._shorter(b))):
            if left and right and (found := self._of_heads(left, right, a, b, longest, least)):
                return found
        return None

    def _shorter(self, term: str) -> str | None:
        """A known term that remains of a compound without words at its beginning."""
        _, _, rest = term.partition(" ")
        return self._known_head(rest) if rest else None

    def _known_head(self, term: str) -> str | None:
        words = term.split()
        endings = (" ".join(words[n:]) for n in range(len(words)))
        return next((ending for ending in endings if ending in self), None)

    def _of_heads(
        self, left: str | None, right: str | None, a: str, b: str, longest: int, least: float
    ) -> Path | None:
        """A compound is one of what its head names, so what holds of the head holds of it."""
        if left is None or right is None:
            return None
        found: Path | None = Path(Relation.EQUAL, 1.0, (left,))
        if left != right:
            found = self._search(left, right, longest, least)
        if found is None:
            return None
        relation: Relation | None = found.relation
        if left != a:
            relation = compose(Relation.IS_A, found.relation) if relation in INVERSE else None
        if relation is not None and right != b:
            relation = compose(relation, Relation.INVERSE_IS_A)
        if relation is None:
            return None
        derived = relation is Relation.RELATED and found.relation is not Relation.RELATED
        score = found.score - (RELATED_COST if derived else 0.0)
        terms = tuple(dict.fromkeys((a, *found.terms, b)))
        return Path(relation, score, terms) if score >= least else None


_OF_MODIFIERS: Final = (Relation.EQUAL, Relation.IS_A, Relation.INVERSE_IS_A)
_ORDER: Final = tuple(Relation)


def _extended(path: Path, term: str, found: Mapping[Relation, float]) -> Iterator[Path]:
    for following, score in found.items():
        relation = compose(path.relation, following)
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
        InputUnfit: It states nothing.
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
        stored = ", ".join(each for each in Relation if each is not Relation.RELATED)
        raise InputUnfit(
            f"background: the row {row['id']} needs source, target, a relation ({stored}), "
            "and a confidence above 0, at most 1."
        )
    return Statement(str(row["source"]), str(row["target"]), relation, confidence)
