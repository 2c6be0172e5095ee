"""The model of a run: the weight of each agreement level, and explanations for users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap
from math import log2
from sys import float_info
from typing import Any, NamedTuple

import numpy as np

from spark_jobs.linkage.open.agreement import pattern_levels
from spark_jobs.linkage.open.em import Estimate
from spark_jobs.linkage.open.spec import FieldComparison
from spark_jobs.linkage.open.strings import Floats, Rows
from spark_jobs.runner.specification import SpecInvalid

__all__ = ["Model", "bits_of"]


def bits_of(probability: float) -> float:
    """Return the log2 odds of a probability; certainty is 1,000 bits."""
    return 1000.0 if probability >= 1 else log2(probability) - log2(1 - probability)


class Evidence(NamedTuple):
    """The bits of evidence of one comparison for a match; negative: against it."""

    comparison: str
    level: str
    bits: float

    @property
    def sentence(self) -> str:
        if self.level == "null":
            return f"{self.comparison} is missing and says nothing."
        verb = "speaks for" if self.bits > 0 else "speaks against"
        return f"{self.comparison} ({self.level}) {verb} a match by {abs(self.bits):.1f} bits."


@dataclass(frozen=True, slots=True)
class Model:
    comparisons: tuple[FieldComparison, ...]
    estimate: Estimate

    @property
    def prior_bits(self) -> float:
        """The log2 odds of a pair before any evidence."""
        return bits_of(self.estimate.share)

    def pattern_bits(self, patterns: Rows) -> Floats:
        """Return the log2 odds of pairs of these patterns, without the rarity of their values.

        With term frequency, exact agreement adds log2 m here; rarity adds -log2 of the value's own
        frequency, in place of u.
        """
        levels = pattern_levels(self.comparisons, patterns)
        bits = np.full(len(patterns), self.prior_bits)
        for k in range(len(self.comparisons)):
            bits += self._level_bits(k)[levels[:, k]]
        return bits

    def _level_bits(self, k: int) -> Floats:
        bits = self.estimate.weights[k].copy()
        if self.comparisons[k].term_frequency:
            bits[1] = log2(self.estimate.m[k][1])
        return bits

    def explanation(self, pattern: int) -> str:
        start = f"Of two records the odds are {_odds(self.prior_bits)} beforehand."
        return " ".join([start, *(step.sentence for step in self.steps(pattern))])

    def usual_rarity(self, pattern: int) -> float:
        """Return the offset of a rarity; a sum above 0 means that values are rarer than usual."""
        levels = pattern_levels(self.comparisons, np.array([pattern], np.int64))[0]
        expected = [
            log2(self.estimate.u[k][1])
            for k, comparison in enumerate(self.comparisons)
            if comparison.term_frequency and levels[k] == 1
        ]
        return sum(expected, 0.0)

    def steps(self, pattern: int) -> list[Evidence]:
        """Return the bits that each comparison of a pair of this pattern adds to the prior bits."""
        levels = pattern_levels(self.comparisons, np.array([pattern], np.int64))[0]
        return [
            Evidence(
                comparison.name,
                comparison.level_names[level],
                float(self.estimate.weights[k][level]),
            )
            for k, (comparison, level) in enumerate(
                zip(self.comparisons, levels.tolist(), strict=True)
            )
        ]

    def to_json(self) -> dict[str, Any]:
        return {
            "share": self.estimate.share,
            "comparisons": [
                {"name": comparison.name, "levels": self._levels_json(k, comparison)}
                for k, comparison in enumerate(self.comparisons)
            ],
        }

    def _levels_json(self, k: int, comparison: FieldComparison) -> list[dict[str, Any]]:
        estimate = self.estimate
        return [
            {
                "level": name,
                "m": float(estimate.m[k][at]),
                "u": float(estimate.u[k][at]),
                "bits": float(estimate.weights[k][at]),
            }
            for at, name in enumerate(comparison.level_names)
            if at
        ]

    @classmethod
    def of_json(cls, document: Mapping[str, Any], comparisons: Sequence[FieldComparison]) -> Model:
        """Read the JSON of `to_json`; raise `SpecInvalid` if it is for other comparisons."""
        try:
            pairs = zip(document["comparisons"], comparisons, strict=True)
            m, u = zip(*starmap(_read_levels, pairs), strict=True)
            share = _read_share(document["share"])
        except (KeyError, TypeError, ValueError, LookupError) as error:
            raise SpecInvalid("/model", "it is not a model of these comparisons") from error
        return cls(tuple(comparisons), Estimate(m, u, share))


def _read_share(value: Any) -> float:
    share = float(value)
    # The odds of a subnormal share are beyond the range of floats.
    if not float_info.min <= share < 1:
        raise ValueError(share)
    return share


def _read_levels(document: Mapping[str, Any], comparison: FieldComparison) -> tuple[Floats, Floats]:
    names = [level["level"] for level in document["levels"]]
    if document["name"] != comparison.name or names != list(comparison.level_names[1:]):
        raise ValueError(comparison.name)
    m, u = (
        np.array([0.0, *(float(level[parameter]) for level in document["levels"])])
        for parameter in ("m", "u")
    )
    if not (np.all((m[1:] > 0) & (m[1:] <= 1)) and np.all((u[1:] > 0) & (u[1:] <= 1))):
        raise ValueError(comparison.name)
    return m, u


def _odds(bits: float) -> str:
    return f"1 to {2**-bits:,.0f}" if bits < 0 else f"{2**bits:,.0f} to 1"
