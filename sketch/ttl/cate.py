"""Constrained Adaptive TTL Estimation; docs/papers/cache_sketch.md, "TTL estimators"."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import exp, expm1, log1p
from typing import Literal

from sketch.protocol.port import Partition
from sketch.ttl.adaptive import Adaptive, AdaptiveSettings
from sketch.ttl.history import KeyHistory, TtlProposal
from sketch.ttl.port import Weights
from sketch.ttl.rates import ClassRates, Memory

__all__ = ["Cate", "CateSettings", "Ratio", "estimated_ttl_s"]

Ratio = Literal["linear", "logistic", "unweighted"]

_MAX_EXPONENT = 700.0
"""The exponential function overflows beyond it."""

_MAX_IMBALANCE = 1e300


@dataclass(frozen=True, slots=True)
class CateSettings(AdaptiveSettings):
    """How TTLs of one class are estimated.

    Attributes:
        weights: The costs of misses and invalidations; equal ones are the paper's estimator.
        ratio: How the quantile follows from the imbalance of misses and writes.
        slope: How strongly it does; no effect on "unweighted".
    """

    weights: Weights = field(default=Weights(1, 1, 1, 1))
    ratio: Ratio = "linear"
    slope: float = 0.1


def estimated_ttl_s(
    miss_rate: float, write_rate: float, settings: CateSettings, violation: float = 0.0
) -> float:
    """Return the TTL of a record; rates are per second, `violation` is from 0 to 1.

    A `write_rate` of 0 means that it was never written.
    """
    if write_rate <= 0:
        return settings.max_ttl_s
    max_quantile = -expm1(-write_rate * settings.max_ttl_s)
    weighted = miss_rate * settings.weights.miss_per_invalidation
    # Capped before the penalty: otherwise it would not affect records that are mostly read.
    p = min(_quantile(weighted, write_rate, settings), max_quantile)
    if violation > 0:
        p *= settings.constraints.penalty(violation)
    if p <= 0:
        return 0.0
    return settings.max_ttl_s if p >= max_quantile else -log1p(-p) / write_rate


def _quantile(misses: float, writes: float, settings: CateSettings) -> float:
    if misses <= 0:
        return 0.0
    match settings.ratio:
        case "unweighted":
            return misses / (misses + writes)
        case "linear":
            return 0.5 + settings.slope * _imbalance(misses, writes)
        case "logistic":
            steepness = -settings.slope * _imbalance(misses, writes)
            return 1 / (1 + exp(min(steepness, _MAX_EXPONENT)))


def _imbalance(misses: float, writes: float) -> float:
    # Finite, whatever the rates: infinity times a slope of 0 is not a number.
    if misses >= writes:
        return min(misses / writes, _MAX_IMBALANCE) - 1
    return 1 - min(writes / misses, _MAX_IMBALANCE)


class Cate(Adaptive[CateSettings]):
    """Estimates TTLs by the rates of misses and writes of each record."""

    def __init__(
        self, settings: CateSettings | None = None, memory: Memory | None = None, seed: int = 0
    ) -> None:
        super().__init__(settings or CateSettings(), memory, seed)

    def _propose(
        self,
        partition: Partition,
        rates: ClassRates,
        key: str,
        history: KeyHistory | None,
        now_s: float,
    ) -> TtlProposal:
        settings = self._class_settings.get(partition, self._settings)
        key_rates = rates.at_miss(key, history, now_s)
        violation = settings.constraints.violation(rates, now_s)
        writes = key_rates.writes if key_rates.written else 0.0
        ttl_s = estimated_ttl_s(key_rates.misses, writes, settings, violation)
        return TtlProposal(ttl_s, -expm1(-writes * ttl_s))
