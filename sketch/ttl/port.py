"""The port of TTL estimators, the terms of classes, and the event of a granted TTL."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, NamedTuple

from sketch.protocol.port import Partition
from sketch.ttl.history import Regret

__all__ = ["Static", "Terms", "TtlEstimator", "TtlGranted", "Weights"]


@dataclass(frozen=True, slots=True)
class Weights:
    """The cost of each event, in any unit; docs/papers/cache_sketch.md, "TTL estimators".

    Attributes:
        invalidation: A write to a key that caches hold: a purge, an entry of the filter.
        stale: A read that is answered with an overwritten version.
        miss: A read that the origin has to answer, including revalidations.
        false_positives: The filter's false positive rate: all reads that it touches wrongly.

    Raises:
        ValueError: One of them is negative or not finite, or misses and invalidations cost nothing.
    """

    invalidation: float = 0.2
    stale: float = 1.0
    miss: float = 1.0
    false_positives: float = 1.0

    def __post_init__(self) -> None:
        if not all(math.isfinite(weight) and weight >= 0 for weight in astuple(self)):
            raise ValueError("a weight is a number that is not negative")
        if self.miss == 0 or self.invalidation == 0:
            raise ValueError("misses and invalidations cost something")

    @property
    def miss_per_invalidation(self) -> float:
        return self.miss / self.invalidation

    def cost(
        self, invalidations: int, stale: int, misses: int, accesses: int, false_positives: float
    ) -> float:
        """Return the cost of each access, the paper's cost function."""
        total = self.invalidation * invalidations + self.stale * stale + self.miss * misses
        return total / max(accesses, 1) + self.false_positives * false_positives


class TtlGranted(NamedTuple):
    """A response of a class was granted a TTL, in seconds; 0: it must not be cached."""

    partition: Partition
    ttl_s: float


class Terms(NamedTuple):
    """Terms of a class: its longest TTL, in seconds, and the cost of a wrong TTL."""

    max_ttl_s: float
    weights: Weights


class TtlEstimator:
    """Estimates TTLs, and is notified of every miss and of every write; times are in seconds.

    A replica sees only its share of the requests: it sends its rates to the other replicas
    (`share`) and merges theirs (`merge`), at any interval. Estimators do no input or output, and
    are used by one event loop. By default nothing is learned or shared.
    """

    @property
    def regrets(self) -> Mapping[Partition, Regret]:
        """Outcomes of copies, by class; empty if nothing is remembered."""
        return {}

    def set_terms(self, terms: Mapping[Partition, Terms]) -> None:
        """Set the terms of all classes; other classes are forgotten."""

    def ttl_s(self, partition: Partition, keys: Sequence[str], now_s: float) -> float:
        """Return the TTL of a missed response that shows these keys: the shortest of theirs.

        It is called before `missed`, and counts the current miss.
        """
        raise NotImplementedError

    def missed(
        self, partition: Partition, keys: Sequence[str], now_s: float, ttl_s: float | None = None
    ) -> None:
        """Record that a response that shows these keys came from the origin.

        `ttl_s` is the TTL that it was finally granted, 0 if it must not be cached; None: the last
        result of `ttl_s` for each key.
        """

    def wrote(
        self, partition: Partition, keys: Sequence[str], now_s: float, created: Collection[str] = ()
    ) -> None:
        """Record a write to these keys; the records of `created` did not exist before."""

    def filled(self, partition: Partition, false_positives: float) -> None:
        """Record the filter's current false positive rate for a partition."""

    def share(self, now_s: float) -> Iterator[Any]:  # noqa: ARG002 - nothing by default
        """Return this replica's rates for the other replicas, as JSON of bounded size.

        Each class has an entry, computed when it is iterated: each takes milliseconds.
        """
        return iter(())

    def merge(self, shares: Sequence[Any], now_s: float) -> None:
        """Merge the last shares of all other replicas; they replace earlier ones.

        Malformed entries are skipped.
        """


class Static(TtlEstimator):
    """Gives every response the same TTL; the caller caps it by the class's limit."""

    def __init__(self, ttl_s: float = math.inf) -> None:
        self._ttl_s = ttl_s

    def ttl_s(self, partition: Partition, keys: Sequence[str], now_s: float) -> float:  # noqa: ARG002 - the port
        return self._ttl_s
