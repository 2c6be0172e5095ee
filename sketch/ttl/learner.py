"""TTLs by cost: the best TTL of a model of reads and writes, corrected in hindsight."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import cosh, expm1, inf, log, log2
from typing import Final

from sketch.protocol.port import Partition
from sketch.ttl.adaptive import Adaptive, AdaptiveSettings
from sketch.ttl.costs import Belief, SampleOutcome, about_best, cost
from sketch.ttl.history import KeyHistory, TtlProposal
from sketch.ttl.port import Terms
from sketch.ttl.rates import ClassRates, KeyRates, Memory

__all__ = ["Learner", "LearnerSettings"]

_FINE_FACTOR: Final = 2**0.5
_SLOPE_STEPS: Final = 4
"""Fine steps of the slope in either direction, to 4 and to a quarter: evidence may correct the
model, not replace it."""

_COARSE_FACTOR: Final = 2.0
_MAX_TTL_LOW_S: Final = 1.0
"""The longest TTL is never shorter."""

_SLOPE_TRUST: Final = 100.0
"""At first, overruling the model's slope takes evidence of this many misses."""

_MAX_TTL_TRUST: Final = 1.0
"""There is no prior for the longest TTL: little evidence shortens it."""


class Parameter:
    """A positive number, chosen from a few candidates by their costs in hindsight.

    Costs are sums in which older ones count for less. They start with the costs of the model: near
    the best TTL T of many reads, a TTL of m · T costs (m + 1/m)/2 times as much; it takes `trust`
    misses to overrule them.

    Attributes:
        value: The cheapest candidate, or between it and the next one.
        candidates: Rising; each is the previous one times the factor.
    """

    __slots__ = ("_costs", "_factor", "_keep", "candidates", "value")

    def __init__(
        self, first: float, factor: float, below: int, above: int, copies: int, trust: float
    ) -> None:
        steps = range(-below, above + 1)
        self.candidates = tuple(first * factor**step for step in steps)
        self.value = first
        self._factor = factor
        self._keep = 1 - 1 / copies if copies > 0 else None
        self._costs = [trust * cosh(step * log(factor)) for step in steps]

    def adjust(self, costs: Iterable[float]) -> None:
        """Add the costs that a copy would have had with each candidate, in misses."""
        keep = self._keep
        if keep is None:
            return
        self._costs = [
            before * keep + of_copy for before, of_copy in zip(self._costs, costs, strict=True)
        ]
        best = self._costs.index(min(self._costs))
        self.value = self.candidates[best] * self._factor ** _vertex(self._costs, best)


def _vertex(costs: list[float], best: int) -> float:
    """Return the minimum of the parabola through the least cost and its neighbours, in steps."""
    if not 0 < best < len(costs) - 1:
        return 0.0
    before, minimum, after = costs[best - 1 : best + 2]
    bend = before - 2 * minimum + after
    return (before - after) / (2 * bend) if bend > 0 else 0.0


class LearnedParameters:
    """The learned parameters of one class.

    The time of the first write after a grant is seen whatever the TTL was. So each copy shows the
    cost of every other slope, or longest TTL, without trying it. This is learning with full
    information, where the leader is followed without exploring (Hannan, 1957).

    Attributes:
        slope: The factor of the model's TTLs.
        max_ttl_s: The longest TTL (TTL_max).
    """

    __slots__ = ("max_ttl_s", "slope")

    def __init__(self, max_ttl_s: float, copies: int) -> None:
        self.slope = Parameter(1.0, _FINE_FACTOR, _SLOPE_STEPS, _SLOPE_STEPS, copies, _SLOPE_TRUST)
        self.max_ttl_s = Parameter(
            max_ttl_s, _COARSE_FACTOR, _halvings(max_ttl_s), 0, copies, _MAX_TTL_TRUST
        )

    def adjust(self, belief: Belief, outcome: SampleOutcome) -> None:
        """Adjust both by the outcome of a copy.

        The slope accounts for when writes come, if the rates are right; the longest TTL for the
        cost if they are not.
        """
        best_s, unused_s = belief.best_s, belief.unused_s
        slope, max_ttl_s = self.slope.value, self.max_ttl_s.value
        model_ttl_s = slope * best_s + unused_s
        ttls_s = [min(model_ttl_s, candidate) for candidate in self.max_ttl_s.candidates]
        self.max_ttl_s.adjust(cost(ttl_s, belief, outcome) for ttl_s in ttls_s)
        # The slope is evaluated as if the rates were right: without the accesses after the write.
        until_write = outcome._replace(after=None)
        ttls_s = [
            min(candidate * best_s + unused_s, max_ttl_s) for candidate in self.slope.candidates
        ]
        self.slope.adjust(cost(ttl_s, belief, until_write) for ttl_s in ttls_s)


def _halvings(max_ttl_s: float) -> int:
    return int(log2(max_ttl_s / _MAX_TTL_LOW_S)) if _MAX_TTL_LOW_S < max_ttl_s < inf else 0


@dataclass(frozen=True, slots=True)
class LearnerSettings(AdaptiveSettings):
    """How TTLs of one class are learned.

    Attributes:
        unseen_s: How long clients have not seen a write, on average: half of Δ.
        copies: About how many copies slope and longest TTL are learned from; 0: none.
    """

    unseen_s: float = 0.5
    copies: int = 2_000


class Learner(Adaptive[LearnerSettings]):
    """Grants the TTL of least cost, as far as it is known.

    It differs from CATE in three points. It counts reads where no copy could answer them, and so
    knows how often a key is read, not only how often it is missed. It hands out no copies that no
    client would use, because the filter holds their keys for long. And it sets slope and longest
    TTL of each class to the values of least cost, by the outcomes of copies (`LearnedParameters`).
    """

    def __init__(
        self, settings: LearnerSettings | None = None, memory: Memory | None = None, seed: int = 0
    ) -> None:
        super().__init__(settings or LearnerSettings(), memory, seed)
        self._parameters: dict[Partition, LearnedParameters] = {}

    def set_terms(self, terms: Mapping[Partition, Terms]) -> None:
        """Set the terms of all classes; parameters learned for other terms are forgotten."""
        before = self._class_settings
        super().set_terms(terms)
        for partition in [*self._parameters]:
            if self._class_settings.get(partition) != before.get(partition):
                del self._parameters[partition]

    @property
    def parameters(self) -> Mapping[Partition, LearnedParameters]:
        return self._parameters

    def _propose(
        self,
        partition: Partition,
        rates: ClassRates,
        key: str,
        history: KeyHistory | None,
        now_s: float,
    ) -> TtlProposal:
        settings = self._class_settings.get(partition, self._settings)
        parameters = self._parameters_of(partition, settings)
        key_rates = rates.at_miss(key, history, now_s)
        if key_rates.reads <= 0 or key_rates.writes <= 0:
            return _NO_TTL  # only other replicas know the key, and not enough
        in_filter_s = max(0.0, history.stale_until_s - now_s) if history is not None else 0.0
        model = _model(key_rates, settings)
        free_s = in_filter_s - self._memory.margin_s
        if free_s > _LONG_SHARE * model.best_s:
            # Until the key leaves the filter, copies answer only clients that have revalidated
            # them; another request comes by then, and a TTL that ends then keeps it no longer.
            ttl_s = min(free_s, settings.max_ttl_s)
            return TtlProposal(ttl_s, -expm1(-ttl_s * key_rates.writes))
        proposal = _proposal(
            model._replace(unused_s=max(in_filter_s, self._memory.transit_s)), parameters
        )
        violation = settings.constraints.violation(rates, now_s)
        if violation > 0:
            shorter_s = proposal.ttl_s * settings.constraints.penalty(violation)
            return TtlProposal(shorter_s, -expm1(-shorter_s * key_rates.writes))
        return proposal

    def _learn(self, partition: Partition, proposal: TtlProposal, outcome: SampleOutcome) -> None:
        parameters = self._parameters.get(partition)
        if proposal.belief is not None and parameters is not None:
            parameters.adjust(proposal.belief, outcome)

    def _parameters_of(self, partition: Partition, settings: LearnerSettings) -> LearnedParameters:
        parameters = self._parameters.get(partition)
        if parameters is None:
            parameters = self._parameters[partition] = LearnedParameters(
                settings.max_ttl_s, settings.copies
            )
        return parameters


_NO_TTL: Final = TtlProposal(0.0)

_LONG_SHARE: Final = 0.1
"""If the filter holds a key for longer than this share of its best TTL, no TTL beyond that time is
granted."""


def _model(key_rates: KeyRates, settings: LearnerSettings) -> Belief:
    """Return the best TTL by the model, for a copy that is used at once."""
    weights = settings.weights
    price = 1 / weights.miss_per_invalidation
    ratio = key_rates.reads / key_rates.writes
    u, late = about_best(ratio, price), 1.0
    if u > 0 and weights.stale != weights.miss:
        unseen = min(1.0, settings.unseen_s * key_rates.writes / u)
        late = 1 + unseen * (weights.stale / weights.miss - 1)
        u = about_best(ratio, price, late)
    return Belief(u / key_rates.writes, 0.0, key_rates.reads, key_rates.writes, price, late)


def _proposal(belief: Belief, parameters: LearnedParameters) -> TtlProposal:
    """Return the TTL by a belief: 0 if it costs more than it saves."""
    ttl_s = min(
        parameters.slope.value * belief.best_s + belief.unused_s, parameters.max_ttl_s.value
    )
    writes = ttl_s * belief.writes
    written = -expm1(-writes)
    answered = belief.reads / belief.writes * (written + expm1(-belief.unused_s * belief.writes))
    if belief.best_s <= 0 or answered <= belief.invalidation * writes:
        return _NO_TTL
    return TtlProposal(ttl_s, written, belief)
