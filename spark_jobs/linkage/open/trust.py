"""Whether the links of a run can be trusted, which no label is needed to doubt.

Two things speak about precision: the probabilities of the links, and the links that contradict one
another. Where a table names everything once, a record with three links into it has two wrong ones;
a model that believed in all three is not to be believed about the third.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

__all__ = ["trust"]

_TRUSTED: Final = 0.8
_CONTRADICTED: Final = 0.2


def trust(links: int, kept: int, probability: float) -> Mapping[str, Any]:
    """Report the expected precision of a run's links, with warnings in words.

    Args:
        links: Pairs at least as probable as the threshold.
        kept: Those of them that ended in one cluster.
        probability: The mean probability of those.
    """
    consistent = kept / links if links else 1.0
    precision = consistent * probability if links else None
    return {
        "links": links,
        "kept": kept,
        "estimated_precision": None if precision is None else round(precision, 4),
        "warnings": list(_warnings(links, consistent, precision)),
    }


def _warnings(links: int, consistent: float, precision: float | None) -> Iterator[str]:
    if not links:
        yield "There are no links: no pair is probable enough to be one."
    if 1.0 - consistent > _CONTRADICTED:
        yield (
            f"{1.0 - consistent:.0%} of the links contradict better ones, so what is compared does "
            "not tell records apart."
        )
    if precision is not None and precision < _TRUSTED:
        yield (
            f"These links cannot be trusted: about {precision:.0%} of them are right, by their own "
            "probabilities and contradictions."
        )
