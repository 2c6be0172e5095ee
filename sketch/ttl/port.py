"""What says for how long an answer should live."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from sketch.protocol.port import Partition
from sketch.ttl.regret import Regret
from sketch.ttl.weights import Weights

__all__ = ["Terms", "TtlEstimator"]


class Terms(NamedTuple):
    """What a class asks of lives.

    Attributes:
        longest_s: No copy may live longer.
        weights: What it costs if a life was wrong.
    """

    longest_s: float
    weights: Weights


class TtlEstimator(Protocol):
    """Estimates lives; told of every miss and of every write. All times are in seconds.

    A replica sees only its share of the requests: what it measures is told to the others
    (`share`), and what they told is taken in (`merge`), at any interval. Estimators do no input or
    output themselves, and are used by one event loop.
    """

    @property
    def regrets(self) -> Mapping[Partition, Regret]:
        """What became of copies, by class; empty if nothing is remembered."""

    def set_terms(self, terms: Mapping[Partition, Terms]) -> None:
        """Take in what all classes ask for; what is remembered of others is forgotten."""

    def ttl_s(self, partition: Partition, keys: Sequence[str], now_s: float) -> float:
        """Return the life of an answer that shows these keys, and missed: the shortest of theirs.

        It is asked before `missed` is told, and counts the miss that is going on.
        """

    def missed(
        self, partition: Partition, keys: Sequence[str], now_s: float, life_s: float | None = None
    ) -> None:
        """Note that an answer that shows these keys came from the origin.

        Args:
            partition: Class of the keys.
            keys: What the answer shows.
            now_s: The time.
            life_s: What it was granted in the end, 0 if it must not be kept; None: what `ttl_s`
                last said of each key.
        """

    def wrote(
        self, partition: Partition, keys: Sequence[str], now_s: float, created: Collection[str] = ()
    ) -> None:
        """Note a write to these keys.

        Args:
            partition: Class of the keys.
            keys: What was written.
            now_s: The time.
            created: Those of them whose records were not there before.
        """

    def filled(self, partition: Partition, false_positives: float) -> None:
        """Note the share of keys that the filter of a partition finds wrongly, as it stands."""

    def share(self, now_s: float) -> Iterator[Any]:
        """Return what the other replicas are to know, as JSON; of bounded size.

        There is an entry for each class, made when it is asked for: each takes milliseconds.
        """

    def merge(self, others: Sequence[Any], now_s: float) -> None:
        """Take in the lists of entries that all other replicas told last.

        They replace what was taken in before.
        What is not understood counts as not told.
        """
