"""The sketch: its filter against pybloom-live, half of it hits, on one core; its server in Redis.

Both filters have as many bits and hold the same keys at the same false positive rate. A figure
counts only if no filter has lost a key.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from random import Random
from time import perf_counter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pybloom_live import BloomFilter as LiveFilter  # type: ignore[import-untyped]  # it has no types

from app.commands.demo.failed import Failed
from benchmarks.harness.report import Measured, Options, Result, medians, per_second
from benchmarks.harness.shared_servers import embedded_redis
from benchmarks.harness.sketch_redis import sketch_in_redis
from sketch.filter.bloom import BloomFilter
from sketch.filter.hashing import hash_all
from sketch.filter.shape import FilterShape, capacity

__all__ = ["run"]

_RATE: Final = 0.05
_SHAPE: Final = FilterShape()
_KEYS: Final = capacity(_SHAPE.bits, _RATE)
_HASHES: Final = 1_000_000
_STRANGERS: Final = 1_000_000
_STRANGERS_BATCH: Final = 100_000

_BAR_SINGLE: Final = 1.3
_BAR_BATCH: Final = 5.0
_BAR_HASHES_PER_S: Final = 20_000_000
_BAR_DISTANCE: Final = 0.1


@dataclass(frozen=True, slots=True)
class _Filters:
    """Both filters with the same keys, and the keys looked up in them, half of them hits.

    Lookups are measured in keys per second.
    """

    ours: BloomFilter
    live: LiveFilter
    keys: list[str]
    hashes: NDArray[Any]

    @classmethod
    def fill(cls, seed: int) -> _Filters:
        ours, live = BloomFilter(_SHAPE), LiveFilter(_KEYS, _RATE)
        keys = [_key(number) for number in range(2 * _KEYS)]
        ours.add_many(keys[:_KEYS])
        for key in keys[:_KEYS]:
            live.add(key)
        if not (ours.contains_many(keys[:_KEYS]).all() and all(k in live for k in keys[:_KEYS])):
            raise Failed("a filter has lost a key")
        Random(seed).shuffle(keys)
        hashes = hash_all(keys, _SHAPE.seed)
        return cls(ours, live, keys, np.resize(hashes, (_HASHES, hashes.shape[1])))

    async def single(self, filter_: Collection[str] | BloomFilter) -> float:
        started = perf_counter()
        for key in self.keys:
            key in filter_  # noqa: B015  # the lookup is measured
        return len(self.keys) / (perf_counter() - started)

    async def batch(self) -> float:
        return _rate(partial(self.ours.contains_many, self.keys), len(self.keys))

    async def batch_of_hashes(self) -> float:
        return _rate(partial(self.ours.contains_hashes, self.hashes), len(self.hashes))


async def run(options: Options) -> Measured:
    results = await _filter_rows(options)
    async with embedded_redis() as endpoint:
        results += await sketch_in_redis(options, endpoint.url)
    return Measured(results, {"redis": f"valkey {endpoint.version}"})


async def _filter_rows(options: Options) -> list[Result]:
    filters = _Filters.fill(options.seed)
    measures: dict[str, Callable[[], Awaitable[float]]] = {
        "pybloom-live": partial(filters.single, filters.live),
        "one by one": partial(filters.single, filters.ours),
        "batch of strings": filters.batch,
        "batch of hashes": filters.batch_of_hashes,
    }
    figures = await medians(5 if options.quick else 25, measures)
    options.log(per_second(figures))
    return [*_contains(figures), *_false_positives(options, filters)]


def _contains(figures: dict[str, float]) -> Iterator[Result]:
    baseline = figures["pybloom-live"]
    for name, bar in (("one by one", _BAR_SINGLE), ("batch of strings", _BAR_BATCH)):
        yield Result(f"contains, {name}", "keys/s", figures[name], baseline, bar)
    name = "batch of hashes"
    yield Result(f"contains, {name}", "keys/s", figures[name], bar=_BAR_HASHES_PER_S)


def _false_positives(options: Options, filters: _Filters) -> Iterator[Result]:
    false_positives = 0
    for first in range(2 * _KEYS, 2 * _KEYS + _STRANGERS, _STRANGERS_BATCH):
        strangers = [_key(number) for number in range(first, first + _STRANGERS_BATCH)]
        false_positives += int(np.count_nonzero(filters.ours.contains_many(strangers)))
    share = false_positives / _STRANGERS
    options.log(f"false positives: {share:.3%} of {_STRANGERS:,} keys, set were {_RATE:.1%}")
    name = f"false positives of {_STRANGERS:,} keys, distance from the set rate"
    distance = abs(share / _RATE - 1)
    yield Result(name, "of the rate", distance, bar=_BAR_DISTANCE, small_is_good=True)


def _key(number: int) -> str:
    return f"articles/{number}#text"


def _rate(look_up: Callable[[], object], keys: int) -> float:
    started = perf_counter()
    look_up()
    return keys / (perf_counter() - started)
