"""The worked example of a TTL estimator: the TTL is a share of the record's age.

A record that was written long ago is likely to stay; a recently written one is likely to be
written again (docs/add-estimator.md). The estimator needs the times of the last writes only.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence
from typing import Final

from sketch.protocol.port import Partition
from sketch.ttl import TtlEstimator

__all__ = ["ByAge"]

_KEYS: Final = 10_000


class ByAge(TtlEstimator):
    """Estimates the TTL of a response by the age of the youngest record in it.

    Replicas exchange nothing: each estimates by the writes that it sees. The age of any other
    record counts from its first miss.

    Args:
        share: The share of the age, above 0.
        keys: Maximum records in all classes; the least recently seen are evicted.
    """

    def __init__(self, share: float = 0.5, keys: int = _KEYS) -> None:
        self._share = share
        self._keys = keys
        self._since_s: OrderedDict[tuple[Partition, str], float] = OrderedDict()

    def ttl_s(self, partition: Partition, keys: Sequence[str], now_s: float) -> float:
        """Return the TTL; 0 for records that were never seen before."""
        since_s = (self._since_s.get((partition, key), now_s) for key in keys)
        return self._share * (now_s - max(since_s, default=now_s))

    def missed(
        self,
        partition: Partition,
        keys: Sequence[str],
        now_s: float,
        ttl_s: float | None = None,  # noqa: ARG002 - the port: the granted TTL does not matter
    ) -> None:
        """Start to count the age of new records."""
        for key in keys:
            self._note((partition, key), self._since_s.get((partition, key), now_s))

    def wrote(
        self,
        partition: Partition,
        keys: Sequence[str],
        now_s: float,
        created: Collection[str] = (),  # noqa: ARG002 - the port: what is new is as young
    ) -> None:
        """Begin to count anew."""
        for key in keys:
            self._note((partition, key), now_s)

    def _note(self, record: tuple[Partition, str], since_s: float) -> None:
        self._since_s[record] = since_s
        self._since_s.move_to_end(record)
        if len(self._since_s) > self._keys:
            self._since_s.popitem(last=False)
