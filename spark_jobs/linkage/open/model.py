"""The model of a run: the weight of each degree of agreement, and explanations for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap
from math import log2
from typing import Any, Final

import numpy as np

from spark_jobs.linkage.open.agreement import pattern_levels
from spark_jobs.linkage.open.em import Estimate
from spark_jobs.linkage.open.spec import Comparison
from spark_jobs.linkage.open.strings import Floats, Rows
from spark_jobs.runner.specification import SpecInvalid

__all__ = ["Model", "bits_of", "probability_of"]

_RARITY: Final = "rarity"


def bits_of(probability: float) -> float:
    """The log2 odds of a probability; certainty is 1,000 bits."""
    return 1000.0 if probability >= 1 else log2(probability) - log2(1 - probability)


def probability_of(bits: float) -> float:
    """The probability of log2 odds."""
    return float(1 / (1 + 2 ** -max(-500.0, min(500.0, bits))))


@dataclass(frozen=True, slots=True)
class Model:
    """What was estimated, and of which comparisons."""

    comparisons: tuple[Comparison, ...]
    estimate: Estimate

    @property
    def prior_bits(self) -> float:
        """The log2 odds of a pair of which nothing is known."""
        return bits_of(self.estimate.share)

    def pattern_bits(self, patterns: Rows) -> Floats:
        """The log2 odds of pairs of these patterns, but for the rarity of their values.

        Where term frequency counts, exact agreement weighs log2 m here; rarity adds -log2 of the
        value's own frequency, which stands for u.
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

    def explain(self, pattern: int, rarity: float) -> dict[str, Any]:
        """Say why a pair has its probability: bits from the prior on, in JSON and in words."""
        rare = rarity + self.usual_rarity(pattern)
        steps = [*self._steps(pattern), _step(_RARITY, "of what is equal", rare)]
        total = self.prior_bits + sum(step["bits"] for step in steps)
        return {
            "prior_bits": self.prior_bits,
            "steps": steps,
            "bits": total,
            "probability": probability_of(total),
            "words": f"{self.explanation(pattern)} {_sentence(steps[-1])}",
        }

    def explanation(self, pattern: int) -> str:
        """Describe the evidence of each comparison of a pair of this pattern."""
        start = f"Of two records the odds are {_odds(self.prior_bits)} beforehand."
        return " ".join([start, *map(_sentence, self._steps(pattern))])

    def usual_rarity(self, pattern: int) -> float:
        """What is to be added to a rarity: above 0, the values agreed on are rarer than usual."""
        levels = pattern_levels(self.comparisons, np.array([pattern], np.int64))[0]
        expected = [
            log2(self.estimate.u[k][1])
            for k, comparison in enumerate(self.comparisons)
            if comparison.term_frequency and levels[k] == 1
        ]
        return sum(expected, 0.0)

    def _steps(self, pattern: int) -> list[dict[str, Any]]:
        levels = pattern_levels(self.comparisons, np.array([pattern], np.int64))[0]
        return [
            _step(one.name, one.level_names[level], float(self.estimate.weights[k][level]))
            for k, (one, level) in enumerate(zip(self.comparisons, levels.tolist(), strict=True))
        ]

    def to_json(self) -> dict[str, Any]:
        """Write it, to be shown, and to be given to a later run."""
        return {
            "share": self.estimate.share,
            "comparisons": [
                {"name": one.name, "levels": self._levels_json(k, one)}
                for k, one in enumerate(self.comparisons)
            ],
        }

    def _levels_json(self, k: int, comparison: Comparison) -> list[dict[str, Any]]:
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
    def of_json(cls, document: Mapping[str, Any], comparisons: Sequence[Comparison]) -> Model:
        """Read what `to_json` wrote.

        Raises:
            SpecInvalid: It is not a model of these comparisons.
        """
        try:
            pairs = zip(document["comparisons"], comparisons, strict=True)
            m, u = zip(*starmap(_read_levels, pairs), strict=True)
            share = _read_share(document["share"])
        except (KeyError, TypeError, ValueError, LookupError) as error:
            raise SpecInvalid("/model", "it is no model of these comparisons") from error
        return cls(tuple(comparisons), Estimate(m, u, share))


def _read_share(value: Any) -> float:
    share = float(value)
    if not 0 < share < 1:
        raise ValueError(share)
    return share


def _read_levels(document: Mapping[str, Any], comparison: Comparison) -> tuple[Floats, Floats]:
    names = [level["level"] for level in document["levels"]]
    if document["name"] != comparison.name or names != list(comparison.level_names[1:]):
        raise ValueError(comparison.name)
    m, u = (
        np.array([0.0, *(float(level[which]) for level in document["levels"])])
        for which in ("m", "u")
    )
    if not (np.all((m[1:] > 0) & (m[1:] <= 1)) and np.all((u[1:] > 0) & (u[1:] <= 1))):
        raise ValueError(comparison.name)
    return m, u


def _step(comparison: str, level: str, bits: float) -> dict[str, Any]:
    return {"comparison": comparison, "level": level, "bits": bits}


def _sentence(step: Mapping[str, Any]) -> str:
    if step["level"] == "null":
        return f"{step['comparison']} is missing and says nothing."
    verb = "speaks for" if step["bits"] > 0 else "speaks against"
    return f"{step['comparison']} ({step['level']}) {verb} a match by {abs(step['bits']):.1f} bits."


def _odds(bits: float) -> str:
    return f"1 to {2**-bits:,.0f}" if bits < 0 else f"{2**bits:,.0f} to 1"
