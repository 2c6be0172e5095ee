"""Whether the links of a run can be trusted, which no label is needed to doubt.

Three things speak about precision: the probabilities of the links, the links that contradict one
another, and those whose records differ by more than they share. Where a table names everything
once, a record with three links into it has two wrong ones; a model that believed in all three is
not to be believed about the third.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

__all__ = ["trust"]

_TRUSTED: Final = 0.8
_CONTRADICTED: Final = 0.2
_DIFFERING: Final = 0.2


def trust(links: int, kept: int, probability: float, differing: float) -> Mapping[str, Any]:
    """Report the expected precision of a run's links, with warnings in words.

    Args:
        links: Pairs at least as probable as the threshold.
        kept: Those of them that ended in one cluster.
        probability: The mean probability of those.
        differing: The share of those whose records seem to be different things (`difference`).
    """
    consistent = kept / links if links else 1.0
    precision = consistent * probability * (1.0 - differing) if links else None
    return {
        "links": links,
        "kept": kept,
        "differing": round(differing, 4),
        "estimated_precision": None if precision is None else round(precision, 4),
        "warnings": list(_warnings(links, consistent, differing, precision)),
    }


def _warnings(
    links: int, consistent: float, differing: float, precision: float | None
) -> Iterator[str]:
    if not links:
        yield "There are no links: no pair is probable enough to be one."
    if 1.0 - consistent > _CONTRADICTED:
        yield (
            f"{1.0 - consistent:.0%} of the links contradict better ones, so what is compared does "
            "not tell records apart."
        )
    if differing > _DIFFERING:
        yield (
            f"In {differing:.0%} of the links each record has more that the other lacks than both "
            "share, if rare words count more: they may be different things described alike."
        )
    if precision is not None and precision < _TRUSTED:
        yield (
            f"These links cannot be trusted: about {precision:.0%} of them are right, by their "
            "probabilities, contradictions and differences."
        )
