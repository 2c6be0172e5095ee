"""The origin: a store, the real server's sketch, and an estimator."""

from __future__ import annotations

from typing import Final

from sketch.filter.bloom import BloomFilter
from sketch.instruments.simulate.tally import SimulationCounts
from sketch.instruments.simulate.world import World
from sketch.memory.partition import MemoryPartition
from sketch.protocol.port import Partition, SketchLimits
from sketch.ttl.port import TtlEstimator

__all__ = ["PARTITION", "Origin"]

PARTITION: Final = Partition("simulated", "records")
_UNLIMITED: Final = 2**30


class Origin:
    """Processes requests in the order of their arrival; times are in seconds.

    `keys` are the names of the records; the tally counts invalidations and the filter's size.
    """

    def __init__(
        self, world: World, keys: list[tuple[str]], estimator: TtlEstimator, tally: SimulationCounts
    ) -> None:
        limits = SketchLimits(max_ttl_s=world.max_ttl_s, margin_s=world.margin_s, keys=len(keys))
        self._partition = MemoryPartition(limits, world.shape, 0, fresh=True)
        self._max_ttl_s, self._shape = world.max_ttl_s, world.shape
        self._margin_s = world.margin_s
        self._keys = keys
        self._records = world.workload.records
        self._estimator = estimator
        self._tally = tally
        self._writes = 0
        self._fresh_until_s = [0.0] * len(keys)
        self._in_filter_until_s = [0.0] * len(keys)
        self._plain: tuple[int, BloomFilter] = (0, BloomFilter(world.shape))
        self.versions = [0] * len(keys)

    def read(self, now_s: float, key: int) -> tuple[int, float]:
        """Return the version, and when copies of it end."""
        names = self._keys[key]
        now = int(now_s * 1e6)
        ttl_s = min(self._estimator.ttl_s(PARTITION, names, now_s), self._max_ttl_s)
        ttl = self._partition.report_read(now, names, int(ttl_s * 1e6))
        self._estimator.missed(PARTITION, names, now_s, ttl / 1e6)
        end_s = (now + ttl) / 1e6
        if ttl:
            self._fresh_until_s[key] = max(self._fresh_until_s[key], end_s + self._margin_s)
        return self.versions[key], end_s

    def begin(self, now_s: float, key: int) -> tuple[str, bool]:
        """Begin a write; return its token, and whether caches are to be purged."""
        self._writes += 1
        token = str(self._writes)
        now = int(now_s * 1e6)
        is_cached = bool(self._partition.begin(now, self._keys[key], token))
        if is_cached:
            self._tally.invalidations += 1
            self._in_filter_until_s[key] = self._fresh_until_s[key]
        return token, is_cached

    def end(self, now_s: float, key: int, token: str) -> None:
        version = self.versions[key] = self.versions[key] + 1
        names = self._keys[key]
        created = names if version == 1 and key >= self._records else ()
        self._partition.end(int(now_s * 1e6), token, {names[0]: version})
        self._estimator.wrote(PARTITION, names, now_s, created)

    def was_in_filter(self, key: int, at_s: float) -> bool:
        """Whether a key belonged in the filter that was generated at a time."""
        return self._in_filter_until_s[key] > at_s

    def filter(self, now_s: float) -> BloomFilter:
        self._partition.expire(int(now_s * 1e6), _UNLIMITED)
        counting = self._partition.filter
        revision, plain = self._plain
        if counting.revision != revision:
            plain = BloomFilter.from_bits(self._shape, counting.bits)
            self._plain = counting.revision, plain
        return plain

    def measure(self, now_s: float) -> None:
        plain = self.filter(now_s)
        rate = plain.false_positive_rate
        self._tally.record_filter(rate, plain.estimated_count)
        self._estimator.filled(PARTITION, rate)
