"""Estimates the precision of a run's links without labels.

Three things indicate precision: the probabilities of the links, links that contradict one another,
and links whose records differ by more than they share. If a table has no duplicates, at least two
of a record's three links into it are wrong; a model that accepted all three is not reliable about
the third either.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

__all__ = ["trust"]

_MIN_PRECISION: Final = 0.8
_MAX_CONTRADICTED: Final = 0.2
_MAX_DIFFERING: Final = 0.2


def trust(links: int, kept: int, probability: float, differing: float) -> Mapping[str, Any]:
    """Report the expected precision of a run's links, with warnings as sentences.

    Args:
        links: The number of pairs at or above the threshold.
        kept: The number of links inside clusters.
        probability: Their mean probability.
        differing: The share of them whose records seem to be different things (`difference`).
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
    if 1.0 - consistent > _MAX_CONTRADICTED:
        yield (
            f"{1.0 - consistent:.0%} of the links contradict better ones, so what is compared does "
            "not tell records apart."
        )
    if differing > _MAX_DIFFERING:
        yield (
            f"In {differing:.0%} of the links each record has more that the other lacks than both "
            "share, if rare words count more: they may be different things described alike."
        )
    if precision is not None and precision < _MIN_PRECISION:
        yield (
            f"These links cannot be trusted: about {precision:.0%} of them are right, by their "
            "probabilities, contradictions and differences."
        )
