"""Feedback: decisions on pairs, which the matching learns from.

A decision binds its own pair: an accepted pair is in the result, a rejected pair is not. Decisions
also calibrate the curve from evidence to confidence, and a single word in which accepted names
differ counts as equal in all other names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from spark_jobs.matching.schemas.background import Statement
from spark_jobs.matching.schemas.relations import Relation
from spark_jobs.matching.schemas.spec import Decision
from spark_jobs.matching.schemas.words import words_of
from spark_jobs.runner.port import InputUnfit

__all__ = ["Decisions", "parse_decisions"]

_TRUTH_VALUES: Final = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True, slots=True)
class Decisions:
    """Pairs of elements, and whether they were accepted.

    Attributes:
        pairs: Whether each pair of elements was accepted.
    """

    pairs: Mapping[tuple[str, str], bool]

    @property
    def accepted(self) -> frozenset[tuple[str, str]]:
        return frozenset(pair for pair, accepted in self.pairs.items() if accepted)

    def statements(self) -> Iterator[Statement]:
        """Yield pairs of words that are equal, because accepted pairs differ only in them."""
        for left, right in sorted(self.accepted):
            one, other = (set(words_of(element.rpartition(".")[2])) for element in (left, right))
            before, after = one - other, other - one
            if len(before) == len(after) == 1:
                yield Statement(before.pop(), after.pop(), Relation.EQUAL)


def parse_decisions(decisions: Iterable[Decision], rows: Iterable[Mapping[str, Any]]) -> Decisions:
    """Join decisions of the specification and of rows.

    Raises:
        InputUnfit: A pair is both accepted and rejected, or a row is not a decision.
    """
    pairs: dict[tuple[str, str], bool] = {}
    triples = [(decision.left, decision.right, decision.accepted) for decision in decisions]
    for left, right, accepted in (*triples, *map(_decision, rows)):
        if pairs.setdefault((left, right), accepted) != accepted:
            raise InputUnfit(f"feedback: {left} and {right} are accepted and rejected.")
    return Decisions(pairs)


def _decision(row: Mapping[str, Any]) -> tuple[str, str, bool]:
    accepted = _TRUTH_VALUES.get(str(row["accepted"]).lower())
    if not row["left"] or not row["right"] or accepted is None:
        raise InputUnfit(
            f"feedback: the row {row['id']} needs left, right, and accepted as true or false."
        )
    return str(row["left"]), str(row["right"]), accepted
