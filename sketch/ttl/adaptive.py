"""What all estimators that learn have in common: they see, remember, tell one another."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from random import Random
from typing import Any

from sketch.protocol.port import Partition
from sketch.ttl.counterfactual import Outcome
from sketch.ttl.exchange import received, to_tell
from sketch.ttl.history import KeyHistory
from sketch.ttl.rates import ClassRates, Memory, PeerRates
from sketch.ttl.regret import Regret
from sketch.ttl.sample import Proposal

__all__ = ["Adaptive"]


class Adaptive(ABC):
    """See `sketch.ttl.port.TtlEstimator`; how a life follows from what was seen is left open.

    Args:
        memory: How much is remembered.
        seed: Decides what is remembered.
    """

    def __init__(self, memory: Memory, seed: int) -> None:
        self._memory = memory
        self._random = Random(seed)  # noqa: S311 - a sample, not a secret
        self._classes: dict[Partition, ClassRates] = {}
        self._peers: dict[Partition, PeerRates] = {}

    @property
    def regrets(self) -> Mapping[Partition, Regret]:
        """What became of copies, by class."""
        return {partition: rates.regret for partition, rates in self._classes.items()}

    def ttl_s(self, partition: Partition, keys: Sequence[str], now_s: float) -> float:
        """Return the shortest life of the keys."""
        rates = self._class(partition, now_s)
        if len(keys) == 1:
            return self._of_key(partition, rates, keys[0], now_s)
        return min((self._of_key(partition, rates, key, now_s) for key in keys), default=0.0)

    def missed(
        self, partition: Partition, keys: Sequence[str], now_s: float, life_s: float | None = None
    ) -> None:
        """Count a miss of each key."""
        rates = self._class(partition, now_s)
        for key in keys:
            history = rates.missed(key, now_s)
            if history is not None:
                self._grant(partition, rates, history, now_s, life_s)

    def wrote(
        self, partition: Partition, keys: Sequence[str], now_s: float, created: Collection[str] = ()
    ) -> None:
        """Count a write to each key; to those that it created, what it begins."""
        rates = self._class(partition, now_s)
        for key in keys:
            history = rates.keys.get(key)
            if key in created and (history is None or history.is_new):
                rates.created(key, history, now_s)
                continue
            rates.wrote(key, history, now_s)
            if history is not None and history.sample is not None:
                self._resolve_sample(partition, history, history.sample.wrote(now_s), now_s)

    def filled(self, partition: Partition, false_positives: float) -> None:
        """Note the filter's false positive rate."""
        if partition in self._classes:
            self._classes[partition].false_positives = false_positives

    def share(self, now_s: float) -> Iterator[Any]:
        """Return rates of each class, and of those of its keys that are asked for most."""
        return to_tell(list(self._classes.items()), now_s)

    def merge(self, others: Sequence[Any], now_s: float) -> None:
        """Take in the rates of the other replicas."""
        self._peers = received(others, now_s + self._memory.peers_s)
        for partition, rates in self._classes.items():
            rates.peers = self._peers.get(partition, PeerRates())

    def _retain(self, partitions: Mapping[Partition, Any]) -> None:
        """Forget all classes but these."""
        for partition in self._classes.keys() - partitions.keys():
            del self._classes[partition]

    @abstractmethod
    def _propose(
        self,
        partition: Partition,
        rates: ClassRates,
        key: str,
        history: KeyHistory | None,
        now_s: float,
    ) -> Proposal:
        """Return the life of a key that is being missed."""

    @abstractmethod
    def _tried(self, partition: Partition, sample: Proposal, outcome: Outcome) -> None:
        """Note what a proposal led to that was granted as it was."""

    def _of_key(self, partition: Partition, rates: ClassRates, key: str, now_s: float) -> float:
        history = rates.keys.get(key)
        proposal = self._propose(partition, rates, key, history, now_s)
        if history is not None:
            history.asked = proposal
        return proposal.life_s

    def _grant(
        self,
        partition: Partition,
        rates: ClassRates,
        history: KeyHistory,
        now_s: float,
        life_s: float | None,
    ) -> None:
        if history.sample is not None:
            self._resolve_sample(partition, history, history.sample.missed(now_s), now_s)
        granted = history.asked.life_s if life_s is None else life_s
        memory = self._memory
        rates.regret.count(history.granted(now_s, granted, memory.transit_s, memory.margin_s))

    def _resolve_sample(
        self, partition: Partition, history: KeyHistory, outcome: Outcome | None, now_s: float
    ) -> None:
        """Learn from a trial, if it is known what became of it.

        Where other replicas see writes of the class, too, it is not: one that they saw would look
        as if there had been none.
        """
        sample = history.sample
        if outcome is None or sample is None:
            return
        history.sample = None
        rates = self._classes[partition]
        if rates.alone(now_s):
            rates.regret.judge(sample.proposal, invalidated=outcome.invalidated)
            self._tried(partition, sample.proposal, outcome)

    def _class(self, partition: Partition, now_s: float) -> ClassRates:
        rates = self._classes.get(partition)
        if rates is None:
            rates = self._classes[partition] = ClassRates(self._memory, self._random, now_s)
            rates.peers = self._peers.get(partition, PeerRates())
        return rates
