"""Fellegi and Sunter's model, estimated by expectation maximisation over patterns.

A matching pair has a level of a comparison with probability m, a non-matching pair with probability
u, independently of the other comparisons. The data are small: the number of pairs of each pattern.
u is estimated from random pairs, which are hardly ever matches, less those that the model counts as
matches. m is estimated from blocked pairs, once per rule, without the comparisons that the rule
decides; the mean over these sessions is weighted by their matches. The share of matches among all
pairs follows from both; the matches of one rule alone are its lower bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from spark_jobs.linkage.open.agreement import Levels
from spark_jobs.linkage.open.strings import Floats, Rows

__all__ = ["Estimate", "Patterns", "RuleEstimate", "estimate", "guess", "session", "share_of"]

_MAX_ROUNDS: Final = 200
_OUTER_ROUNDS: Final = 5
_TOLERANCE: Final = 1e-5
_SMOOTHING: Final = 0.5
_SHARE_LIMITS: Final = (1e-12, 0.5)


@dataclass(frozen=True, slots=True)
class Patterns:
    """The number of pairs of each pattern, and the rules that find these pairs, as bits."""

    levels: Levels
    counts: Floats
    rules: Rows

    def of_rule(self, rule: int) -> Patterns:
        mask = (self.rules >> rule) & 1 == 1
        return Patterns(self.levels[mask], self.counts[mask], self.rules[mask])


@dataclass(frozen=True, slots=True)
class RuleEstimate:
    """The estimate from the pairs of one rule: m, and the expected number of matches.

    m has the probabilities of each comparison's levels (null: 0); None: the rule decides it.
    """

    m: tuple[Floats | None, ...]
    matches: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """The probabilities of each comparison's levels (null: 0), and the share of matches."""

    m: tuple[Floats, ...]
    u: tuple[Floats, ...]
    share: float

    @property
    def weights(self) -> tuple[NDArray[np.float64], ...]:
        """log2(m/u) of every level; 0 for null."""
        return tuple(_bits(m, u) for m, u in zip(self.m, self.u, strict=True))


def estimate(
    random: Patterns,
    blocked: Patterns,
    decided: Sequence[frozenset[int]],
    sizes: Sequence[int],
    pairs: float,
) -> Estimate:
    """Estimate m, u and the share of matches.

    Args:
        random: Patterns of random pairs.
        blocked: Patterns of the pairs that rules find.
        decided: The comparisons that each rule decides.
        sizes: The number of levels of each comparison, including null and else.
        pairs: The number of all pairs, blocked or not.
    """
    u = _shares(random.levels, random.counts, sizes)
    share = 1.0 / max(2.0, pairs)
    m = tuple(guess(size) for size in sizes)
    for _ in range(_OUTER_ROUNDS):
        sessions = [session(blocked.of_rule(r), m, u, ks) for r, ks in enumerate(decided)]
        m = _average_sessions(sessions, m)
        max_matches = max((estimated.matches for estimated in sessions), default=0.0)
        share = max(share_of(blocked, m, u, pairs), min(max_matches / pairs, _SHARE_LIMITS[1]))
        non_matches = random.counts * (1.0 - _posterior(random.levels, m, u, share))
        u = _shares(random.levels, non_matches, sizes)
    return Estimate(m, u, share)


def session(
    blocked: Patterns, start: Sequence[Floats], u: Sequence[Floats], decided: frozenset[int]
) -> RuleEstimate:
    """Estimate m from the pairs of one rule, starting from a guess; u is fixed."""
    m, sizes = list(start), [len(probabilities) for probabilities in start]
    free = [k for k in range(len(m)) if k not in decided]
    share, total = 0.1, float(blocked.counts.sum())
    if not free or not total:
        return RuleEstimate((None,) * len(m), 0.0)
    for _ in range(_MAX_ROUNDS):
        match = blocked.counts * _posterior(blocked.levels, m, u, share, free)
        # Never 0 or 1: their log odds are infinite.
        before, share = share, min(max(float(match.sum()) / total, 1e-9), 1 - 1e-9)
        shares = _shares(blocked.levels, match, sizes)
        change = max(float(np.abs(shares[k] - m[k]).max()) for k in free)
        m = list(shares)
        if max(change, abs(share - before)) < _TOLERANCE:
            break
    return RuleEstimate(tuple(m[k] if k in free else None for k in range(len(m))), share * total)


def _average_sessions(
    sessions: Sequence[RuleEstimate], before: Sequence[Floats]
) -> tuple[Floats, ...]:
    return tuple(_average(sessions, k, probabilities) for k, probabilities in enumerate(before))


def _average(sessions: Sequence[RuleEstimate], k: int, before: Floats) -> Floats:
    """Return the mean of the sessions' estimates for a comparison; without any, `before`."""
    weighted = [
        (estimated.matches, m)
        for estimated in sessions
        if (m := estimated.m[k]) is not None and estimated.matches
    ]
    if not weighted:
        return before
    weights, values = zip(*weighted, strict=True)
    mean: Floats = np.average(np.array(values), axis=0, weights=weights)
    return mean


def guess(size: int) -> Floats:
    """Return the initial m: nine in ten agree, each level half as often as the level above."""
    ratios = 0.5 ** np.arange(size - 2)
    return np.array([0.0, *(0.9 * ratios / ratios.sum()), 0.1])


def _shares(levels: Levels, counts: Floats, sizes: Sequence[int]) -> tuple[Floats, ...]:
    out = []
    for k, size in enumerate(sizes):
        # Smoothed: a level without pairs still needs a logarithm.
        level_counts = _SMOOTHING + np.bincount(levels[:, k], weights=counts, minlength=size)
        level_counts[0] = 0.0
        out.append(level_counts / level_counts.sum())
    return tuple(out)


def _bits(m: Floats, u: Floats) -> Floats:
    bits = np.zeros_like(m)
    bits[1:] = np.log2(m[1:]) - np.log2(u[1:])
    return bits


def _posterior(
    levels: Levels,
    m: Sequence[Floats],
    u: Sequence[Floats],
    share: float,
    compared: Sequence[int] | None = None,
) -> Floats:
    bits = np.full(len(levels), np.log2(share) - np.log2(1.0 - share))
    for k in range(len(m)) if compared is None else compared:
        bits += _bits(m[k], u[k])[levels[:, k]]
    # Clipped, because exp2 would overflow.
    posterior: Floats = 1.0 / (1.0 + np.exp2(-np.clip(bits, -500, 500)))
    return posterior


def share_of(blocked: Patterns, m: Sequence[Floats], u: Sequence[Floats], pairs: float) -> float:
    """Return the share of matches among all pairs; pairs without a rule count as non-matches."""
    share = 1.0 / max(2.0, pairs)
    for _ in range(_MAX_ROUNDS):
        matches = float((blocked.counts * _posterior(blocked.levels, m, u, share)).sum())
        before, share = share, min(max(matches / pairs, _SHARE_LIMITS[0]), _SHARE_LIMITS[1])
        if abs(share - before) <= _TOLERANCE * share:
            break
    return share
