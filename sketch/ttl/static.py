"""One TTL for all answers."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from sketch.protocol.port import Partition
from sketch.ttl.port import Terms
from sketch.ttl.regret import Regret

__all__ = ["Static"]


class Static:
    """Gives every answer the same TTL; the caller caps it by what the class allows."""

    def __init__(self, life_s: float = math.inf) -> None:
        self._life_s = life_s

    @property
    def regrets(self) -> Mapping[Partition, Regret]:
        """Remember nothing."""
        return {}

    def set_terms(self, terms: Mapping[Partition, Terms]) -> None:
        """Do nothing: the caller caps TTLs."""

    def ttl_s(self, partition: Partition, keys: Sequence[str], now_s: float) -> float:  # noqa: ARG002 - the port
        """Return the TTL."""
        return self._life_s

    def missed(
        self, partition: Partition, keys: Sequence[str], now_s: float, life_s: float | None = None
    ) -> None:
        """Learn nothing."""

    def wrote(
        self, partition: Partition, keys: Sequence[str], now_s: float, created: Collection[str] = ()
    ) -> None:
        """Learn nothing."""

    def filled(self, partition: Partition, false_positives: float) -> None:
        """Learn nothing."""

    def share(self, now_s: float) -> Iterator[Any]:  # noqa: ARG002 - the port
        """Share nothing."""
        return iter(())

    def merge(self, others: Sequence[Any], now_s: float) -> None:
        """Learn nothing."""
