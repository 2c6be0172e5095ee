"""TTLs by cost: the best one of a model of reads and writes, corrected in hindsight."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import expm1
from typing import Final

from sketch.protocol.port import Partition
from sketch.ttl.adaptive import Adaptive, AdaptiveSettings
from sketch.ttl.costs import Belief, Outcome, about_best
from sketch.ttl.history import KeyHistory, TtlProposal
from sketch.ttl.parameters import LearnedParameters
from sketch.ttl.port import Terms
from sketch.ttl.rates import ClassRates, KeyRates, Memory

__all__ = ["Learner", "LearnerSettings"]


@dataclass(frozen=True, slots=True)
class LearnerSettings(AdaptiveSettings):
    """How TTLs of one class are learned.

    Attributes:
        unheard_s: For how long clients have not seen a write, on average: half of Δ.
        copies: About how many copies slope and longest TTL are learned from; 0: none.
    """

    unheard_s: float = 0.5
    copies: int = 2_000


class Learner(Adaptive[LearnerSettings]):
    """Grants the TTL that costs least, as far as it can be known.

    It differs from CATE in three things. It counts reads where no copy could answer them, and so
    knows how often a key is read, not only how often it is missed. It hands out no copies that no
    client would use, because the filter holds their keys for long. And it sets slope and longest
    TTL of each class to what would have cost least, by what became of the copies
    (`LearnedParameters`).
    """

    def __init__(
        self, settings: LearnerSettings | None = None, memory: Memory | None = None, seed: int = 0
    ) -> None:
        super().__init__(settings or LearnerSettings(), memory, seed)
        self._parameters: dict[Partition, LearnedParameters] = {}

    def set_terms(self, terms: Mapping[Partition, Terms]) -> None:
        """Take in the terms of all classes; what was learned for other terms is forgotten."""
        before = self._of_class
        super().set_terms(terms)
        for partition in [*self._parameters]:
            if self._of_class.get(partition) != before.get(partition):
                del self._parameters[partition]

    @property
    def parameters(self) -> Mapping[Partition, LearnedParameters]:
        """What was learned, by class."""
        return self._parameters

    def _propose(
        self,
        partition: Partition,
        rates: ClassRates,
        key: str,
        history: KeyHistory | None,
        now_s: float,
    ) -> TtlProposal:
        settings = self._of_class.get(partition, self._settings)
        parameters = self._parameters_of(partition, settings)
        seen = rates.at_miss(key, history, now_s)
        if seen.reads <= 0 or seen.writes <= 0:
            return _REFUSED  # only others know the key, and not enough
        held_s = max(0.0, history.stale_until_s - now_s) if history is not None else 0.0
        model = _model(seen, settings)
        free_s = held_s - self._memory.margin_s
        if free_s > _LONG * model.best_s:
            # Until the key leaves the filter copies answer only those who have revalidated them;
            # another request comes by then, and a TTL that ends then keeps the key no longer.
            life_s = min(free_s, settings.longest_s)
            return TtlProposal(life_s, -expm1(-life_s * seen.writes))
        proposal = _proposal(
            model._replace(unused_s=max(held_s, self._memory.transit_s)), parameters
        )
        violation = settings.constraints.violation(rates, now_s)
        if violation > 0:
            shorter_s = proposal.life_s * settings.constraints.penalty(violation)
            return TtlProposal(shorter_s, -expm1(-shorter_s * seen.writes))
        return proposal

    def _learn(self, partition: Partition, proposal: TtlProposal, outcome: Outcome) -> None:
        parameters = self._parameters.get(partition)
        if proposal.belief is not None and parameters is not None:
            parameters.adjust(proposal.belief, outcome)

    def _parameters_of(self, partition: Partition, settings: LearnerSettings) -> LearnedParameters:
        parameters = self._parameters.get(partition)
        if parameters is None:
            parameters = self._parameters[partition] = LearnedParameters(
                settings.longest_s, settings.copies
            )
        return parameters


_REFUSED: Final = TtlProposal(0.0)

_LONG: Final = 0.1
"""Where the filter holds a key for this share of its best TTL, nothing longer is granted."""


def _model(seen: KeyRates, settings: LearnerSettings) -> Belief:
    """Return the best TTL by the model, of a copy that is used at once."""
    weights = settings.weights
    price = 1 / weights.miss_per_invalidation
    ratio = seen.reads / seen.writes
    u, late = about_best(ratio, price), 1.0
    if u > 0 and weights.stale != weights.miss:
        unheard = min(1.0, settings.unheard_s * seen.writes / u)
        late = 1 + unheard * (weights.stale / weights.miss - 1)
        u = about_best(ratio, price, late)
    return Belief(u / seen.writes, 0.0, seen.reads, seen.writes, price, late)


def _proposal(belief: Belief, parameters: LearnedParameters) -> TtlProposal:
    """Return a TTL by a belief: none if it costs more than it saves."""
    life_s = min(
        parameters.slope.value * belief.best_s + belief.unused_s, parameters.longest_s.value
    )
    writes = life_s * belief.writes
    written = -expm1(-writes)
    answered = belief.reads / belief.writes * (written + expm1(-belief.unused_s * belief.writes))
    if belief.best_s <= 0 or answered <= belief.invalidation * writes:
        return _REFUSED
    return TtlProposal(life_s, written, belief)
