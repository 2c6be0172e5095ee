"""Candidates among the fields of two schemas: names, types, values, structure, background.

The evidence is a naive Bayes classifier's, in bits. Its weights are the same for all data; they
were fitted once to pairs of tables with known truth, and rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final

from spark_jobs.matching.schemas.background import Background, Path
from spark_jobs.matching.schemas.elements import Candidate, Element
from spark_jobs.matching.schemas.names import (
    Name,
    NameEvidence,
    Vocabulary,
    name_evidence,
    names_of,
)
from spark_jobs.matching.schemas.relations import Relation
from spark_jobs.matching.schemas.values import ValueWeights, value_evidence

__all__ = ["MAX_CANDIDATES", "field_candidates"]

MAX_CANDIDATES: Final = 20
"""Maximum candidates for each field of the left."""

_NAME_WEIGHT: Final = 0.55
"""Weight of a name's bits: the letters of a word are not independent."""
_PRIOR_BITS: Final = -4.0
_STATED_BITS: Final = 12.0
"""Bits of an equality stated by the background graph, at a score of 1."""
_PARENT_WEIGHT: Final = 0.2
"""Weight of the bits of the names of parents."""


def field_candidates(
    left: Sequence[Element],
    right: Sequence[Element],
    background: Background,
    query: Callable[[str, str], Path | None],
    progress: Callable[[int], None] = lambda _: None,
) -> Iterator[Candidate]:
    """Yield the best candidates of each field on the left, best first.

    Args:
        query: Queries the background graph for two terms.
        progress: Called with the number of finished fields of the left.
    """
    scoring = _Scoring(left, right, background, query)
    for position in range(len(left)):
        candidates = [scoring.candidate(position, other) for other in range(len(right))]
        candidates.sort(key=lambda candidate: (-candidate.bits, candidate.right))
        yield from islice(candidates, MAX_CANDIDATES)
        progress(position + 1)


class _Scoring:
    def __init__(
        self,
        left: Sequence[Element],
        right: Sequence[Element],
        background: Background,
        query: Callable[[str, str], Path | None],
    ) -> None:
        self._elements = left, right
        self._names = [names_of([element.name for element in side]) for side in (left, right)]
        self._parents = [_parents(side) for side in (left, right)]
        self._vocabulary = Vocabulary(self._names[0], self._names[1], background)
        above = [[name for name in side if name.words] for side in self._parents]
        self._vocabulary_above = Vocabulary(above[0], above[1])
        profiles = [e.profile for side in (left, right) for e in side if e.profile is not None]
        self._weights = ValueWeights(profiles)
        self._query = query if len(background) else _no_path

    def candidate(self, at: int, other_at: int) -> Candidate:
        """Compare a field of the left with a field of the right, by their positions."""
        left, right = self._elements[0][at], self._elements[1][other_at]
        names = name_evidence(self._names[0][at], self._names[1][other_at], self._vocabulary)
        above = self._above(at, other_at)
        values = value_evidence(left, right, self._weights)
        path = self._query(left.name, right.name)
        bits = _NAME_WEIGHT * names.bits + values.bits + _PARENT_WEIGHT * above.bits + _PRIOR_BITS
        relation, reasons = Relation.EQUAL, [names.reason, above.reason, *values.reasons]
        if path is not None and (path.relation is Relation.EQUAL or not names.reason):
            reasons.insert(0, f"the background says {path.relation}: {path}")
            if path.relation is Relation.EQUAL:
                bits += _STATED_BITS * path.score
            else:
                relation, bits = path.relation, path.bits
        evidence = tuple(reason for reason in reasons if reason)
        return Candidate(left.identifier, right.identifier, bits, relation, evidence)

    def _above(self, at: int, other_at: int) -> NameEvidence:
        one, other = self._parents[0][at], self._parents[1][other_at]
        if not one.words or not other.words:
            return NameEvidence(0.0)
        evidence = name_evidence(one, other, self._vocabulary_above)
        return NameEvidence(
            evidence.bits, "they lie under similar names" if evidence.reason else ""
        )


def _parents(elements: Sequence[Element]) -> list[Name]:
    return names_of([" ".join(element.path[:-1]) for element in elements])


def _no_path(_left: str, _right: str) -> None:
    return None
