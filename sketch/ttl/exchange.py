"""Rates that replicas exchange, as JSON.

Rates add up: a write or a miss is seen by exactly one replica. Keys that are requested most are
sent separately; for all others a replica takes its own rate times (all of the class / its own of
the class), which is right if requests are spread evenly. If they are not, rates are too high by the
same factor for reads and writes, and TTLs are only shorter than they might be.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from typing import Any, Final

from sketch.protocol.port import Partition
from sketch.ttl.rates import ClassRates, PeerRates

__all__ = ["received", "to_send"]

_KEYS: Final = 500
_KEYS_OF_ALL: Final = 5_000
"""Keys of a class, and of all classes, that are sent separately."""


def to_send(classes: Sequence[tuple[Partition, ClassRates]], now_s: float) -> Iterator[Any]:
    most = min(_KEYS, _KEYS_OF_ALL // max(len(classes), 1))
    for partition, rates in classes:
        busiest = nlargest(most, rates.keys, key=lambda item: item[1].misses_per_s(now_s))
        yield [
            *partition,
            rates.misses.per_s(now_s),
            rates.writes.per_s(now_s),
            rates.invalidations.per_s(now_s),
            {k: [of.misses_per_s(now_s), of.writes_per_s(now_s)] for k, of in busiest if of.misses},
        ]


def received(others: Sequence[Any], until_s: float) -> dict[Partition, PeerRates]:
    """Add up what all other replicas sent last; entries of another form are left out."""
    totals: defaultdict[Partition, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    keys: defaultdict[Partition, dict[str, tuple[float, float]]] = defaultdict(dict)
    for partition, rates, of_keys in _understood(others):
        totals[partition] = [a + b for a, b in zip(totals[partition], rates, strict=True)]
        known = keys[partition]
        for key, (misses, writes) in of_keys:
            before = known.get(key, (0.0, 0.0))
            known[key] = before[0] + misses, before[1] + writes
    return {
        partition: PeerRates(m, w, i, keys[partition], until_s)
        for partition, (m, w, i) in totals.items()
    }


def _understood(
    others: Iterable[Any],
) -> Iterator[tuple[Partition, tuple[float, float, float], list[tuple[str, tuple[float, float]]]]]:
    for other in others:
        for entry in other if isinstance(other, list) else ():
            match entry:
                case [str(database), str(name), m, w, i, dict(keys)] if _are_rates((m, w, i)):
                    yield Partition(database, name), (m, w, i), list(_of_keys(keys))


def _of_keys(keys: Mapping[Any, Any]) -> Iterator[tuple[str, tuple[float, float]]]:
    for key, rates in keys.items():
        match rates:
            case [m, w] if isinstance(key, str) and _are_rates((m, w)):
                yield key, (m, w)


def _are_rates(values: Sequence[Any]) -> bool:
    return all(isinstance(v, int | float) and math.isfinite(v) and v >= 0 for v in values)
