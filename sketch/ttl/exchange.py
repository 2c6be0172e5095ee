"""Rates that replicas exchange, as JSON.

Rates add up: exactly one replica sees a write or a miss. The keys requested most are sent
separately; for all others a replica multiplies its own rate by (total rate of the class / own rate
of the class), which is right if requests are spread evenly. If they are not, the rates of reads and
writes are too high by the same factor, and TTLs are only shorter than possible.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from typing import Any, Final

from sketch.protocol.port import Partition
from sketch.ttl.rates import ClassRates, PeerRates

__all__ = ["merged_rates", "shared_rates"]

_KEYS: Final = 500
_KEYS_OF_ALL: Final = 5_000
"""Keys of a class, and of all classes, that are sent separately."""


def shared_rates(classes: Sequence[tuple[Partition, ClassRates]], now_s: float) -> Iterator[Any]:
    limit = min(_KEYS, _KEYS_OF_ALL // max(len(classes), 1))
    for partition, rates in classes:
        busiest = nlargest(limit, rates.keys, key=lambda item: item[1].misses_per_s(now_s))
        yield [
            *partition,
            rates.misses.per_s(now_s),
            rates.writes.per_s(now_s),
            rates.invalidations.per_s(now_s),
            {
                k: [history.misses_per_s(now_s), history.writes_per_s(now_s)]
                for k, history in busiest
                if history.misses
            },
        ]


def merged_rates(shares: Sequence[Any], until_s: float) -> dict[Partition, PeerRates]:
    """Add up the rates that all other replicas sent last; malformed entries are skipped."""
    totals: defaultdict[Partition, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    keys: defaultdict[Partition, dict[str, tuple[float, float]]] = defaultdict(dict)
    for partition, rates, of_keys in _valid_entries(shares):
        totals[partition] = [a + b for a, b in zip(totals[partition], rates, strict=True)]
        class_keys = keys[partition]
        for key, (misses, writes) in of_keys:
            before = class_keys.get(key, (0.0, 0.0))
            class_keys[key] = before[0] + misses, before[1] + writes
    return {
        partition: PeerRates(m, w, i, keys[partition], until_s)
        for partition, (m, w, i) in totals.items()
    }


def _valid_entries(
    shares: Iterable[Any],
) -> Iterator[tuple[Partition, tuple[float, float, float], list[tuple[str, tuple[float, float]]]]]:
    for share in shares:
        for entry in share if isinstance(share, list) else ():
            match entry:
                case [str(database), str(name), m, w, i, dict(keys)] if _are_rates((m, w, i)):
                    yield Partition(database, name), (m, w, i), list(_valid_keys(keys))


def _valid_keys(keys: Mapping[Any, Any]) -> Iterator[tuple[str, tuple[float, float]]]:
    for key, rates in keys.items():
        match rates:
            case [m, w] if isinstance(key, str) and _are_rates((m, w)):
                yield key, (m, w)


def _are_rates(values: Sequence[Any]) -> bool:
    return all(isinstance(v, int | float) and math.isfinite(v) and v >= 0 for v in values)
