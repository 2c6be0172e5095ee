"""The base of learning estimators: settings, memory, exchange, constraints."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Generic, TypeVar

from sketch.protocol.port import Partition
from sketch.ttl.costs import SampleOutcome
from sketch.ttl.exchange import merged_rates, shared_rates
from sketch.ttl.history import KeyHistory, Regret, TtlProposal
from sketch.ttl.port import Terms, TtlEstimator, Weights
from sketch.ttl.rates import ClassRates, Memory, PeerRates

__all__ = ["Adaptive", "AdaptiveSettings", "Constraints"]


@dataclass(frozen=True, slots=True)
class Constraints:
    """Both constraints of CATE, each for one class; docs/papers/cache_sketch.md.

    Attributes:
        false_positives: The filter's false positive rate should not exceed this; None: no bound.
        invalidations_per_s: The maximum of copies invalidated in a second, at all replicas;
            None: no bound.
        severity: How strongly a violation acts (the paper's a).
    """

    false_positives: float | None = None
    invalidations_per_s: float | None = None
    severity: float = 1.0

    def violation(self, rates: ClassRates, now_s: float) -> float:
        """Return the degree of violation (the paper's f): 0 for none, near 1 for an extreme one."""
        worst = 0.0
        if self.false_positives is not None:
            worst = _excess(rates.false_positives, self.false_positives)
        if self.invalidations_per_s is not None:
            now = rates.invalidations_per_s(now_s)
            worst = max(worst, _excess(now, self.invalidations_per_s))
        return worst

    def penalty(self, violation: float) -> float:
        """Return the factor of a probability: (1 - f)^a."""
        return float((1 - violation) ** self.severity)


def _excess(measured: float, limit: float) -> float:
    return 1 - limit / measured if measured > limit else 0.0


@dataclass(frozen=True, slots=True)
class AdaptiveSettings:
    """How TTLs of one class are estimated.

    Attributes:
        max_ttl_s: The longest TTL that may be granted (TTL_max).
        weights: The cost of a wrong TTL.
        constraints: Bounds of TTLs, whatever the rates.
    """

    max_ttl_s: float = 600.0
    weights: Weights = field(default=Weights())
    constraints: Constraints = field(default=Constraints())


SettingsT = TypeVar("SettingsT", bound=AdaptiveSettings)


class Adaptive(TtlEstimator, ABC, Generic[SettingsT]):
    """Learns rates; subclasses derive the TTL from them."""

    def __init__(self, settings: SettingsT, memory: Memory | None, seed: int) -> None:
        self._settings = settings
        self._memory = memory or Memory()
        self._random = Random(seed)  # noqa: S311 - a sample, not a secret
        self._class_settings: dict[Partition, SettingsT] = {}
        self._classes: dict[Partition, ClassRates] = {}
        self._peers: dict[Partition, PeerRates] = {}

    @property
    def regrets(self) -> Mapping[Partition, Regret]:
        return {partition: rates.regret for partition, rates in self._classes.items()}

    def set_terms(self, terms: Mapping[Partition, Terms]) -> None:
        for partition in self._classes.keys() - terms.keys():
            del self._classes[partition]
        self._class_settings = {
            partition: replace(self._settings, **class_terms._asdict())
            for partition, class_terms in terms.items()
        }

    def ttl_s(self, partition: Partition, keys: Sequence[str], now_s: float) -> float:
        rates = self._class_rates(partition, now_s)
        if len(keys) == 1:
            return self._ttl_of_key(partition, rates, keys[0], now_s)
        return min((self._ttl_of_key(partition, rates, key, now_s) for key in keys), default=0.0)

    def missed(
        self, partition: Partition, keys: Sequence[str], now_s: float, ttl_s: float | None = None
    ) -> None:
        rates = self._class_rates(partition, now_s)
        for key in keys:
            history = rates.missed(key, now_s)
            if history is not None:
                self._grant(partition, rates, history, now_s, ttl_s)

    def wrote(
        self, partition: Partition, keys: Sequence[str], now_s: float, created: Collection[str] = ()
    ) -> None:
        rates = self._class_rates(partition, now_s)
        for key in keys:
            history = rates.keys.get(key)
            if key in created and (history is None or history.is_new):
                rates.created(key, history, now_s)
                continue
            rates.wrote(key, history, now_s)
            if history is not None and history.sample is not None:
                self._resolve_sample(partition, history, history.sample.wrote(now_s), now_s)

    def filled(self, partition: Partition, false_positives: float) -> None:
        if partition in self._classes:
            self._classes[partition].false_positives = false_positives

    def share(self, now_s: float) -> Iterator[Any]:
        return shared_rates(list(self._classes.items()), now_s)

    def merge(self, shares: Sequence[Any], now_s: float) -> None:
        self._peers = merged_rates(shares, now_s + self._memory.peers_s)
        for partition, rates in self._classes.items():
            rates.peers = self._peers.get(partition, PeerRates())

    @abstractmethod
    def _propose(
        self,
        partition: Partition,
        rates: ClassRates,
        key: str,
        history: KeyHistory | None,
        now_s: float,
    ) -> TtlProposal:
        """Return the TTL of a key that is being missed."""

    def _learn(self, partition: Partition, proposal: TtlProposal, outcome: SampleOutcome) -> None:
        """Learn from a proposal that was granted unchanged; by default nothing."""

    def _ttl_of_key(self, partition: Partition, rates: ClassRates, key: str, now_s: float) -> float:
        history = rates.keys.get(key)
        proposal = self._propose(partition, rates, key, history, now_s)
        if history is not None:
            history.proposed = proposal
        return proposal.ttl_s

    def _grant(
        self,
        partition: Partition,
        rates: ClassRates,
        history: KeyHistory,
        now_s: float,
        ttl_s: float | None,
    ) -> None:
        if history.sample is not None:
            self._resolve_sample(partition, history, history.sample.missed(now_s), now_s)
        granted = history.proposed.ttl_s if ttl_s is None else ttl_s
        memory = self._memory
        rates.regret.count(history.granted(now_s, granted, memory.transit_s, memory.margin_s))

    def _resolve_sample(
        self, partition: Partition, history: KeyHistory, outcome: SampleOutcome | None, now_s: float
    ) -> None:
        sample = history.sample
        if outcome is None or sample is None:
            return
        history.sample = None
        rates = self._classes[partition]
        # If other replicas also see writes of the class, the outcome is unknown: a write that they
        # saw would look like no write.
        if rates.alone(now_s):
            rates.regret.judge(sample.proposal, invalidated=outcome.invalidated)
            self._learn(partition, sample.proposal, outcome)

    def _class_rates(self, partition: Partition, now_s: float) -> ClassRates:
        rates = self._classes.get(partition)
        if rates is None:
            rates = self._classes[partition] = ClassRates(self._memory, self._random, now_s)
            rates.peers = self._peers.get(partition, PeerRates())
        return rates
