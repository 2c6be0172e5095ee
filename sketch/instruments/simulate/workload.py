"""The workloads A to F of the Yahoo! Cloud Serving Benchmark, as schedules of single accesses.

Cooper et al., SoCC 2010; proportions and constants are those of its core workloads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["WORKLOADS", "Mix", "Schedule", "YcsbWorkload", "schedule"]

_THETA: Final = 0.99
"""The exponent of YCSB's Zipf distribution."""

_THINK_S: Final = 0.3
"""Between the read and the write of a read-modify-write."""


@dataclass(frozen=True, slots=True)
class Mix:
    """Shares of the kinds of operations; together 1.

    With `latest` the newest records are the most popular ones. In each of the `seasons` other
    records are popular, so that the rates of all records change in between.
    """

    about: str
    read: float = 0.0
    update: float = 0.0
    insert: float = 0.0
    scan: float = 0.0
    modify: float = 0.0
    latest: bool = False
    seasons: int = 1


WORKLOADS: Final[dict[str, Mix]] = {
    "a": Mix("update heavy: sessions", read=0.5, update=0.5),
    "b": Mix("read mostly: tags of photos", read=0.95, update=0.05),
    "c": Mix("read only: profiles", read=1.0),
    "d": Mix("read latest: status messages", read=0.95, insert=0.05, latest=True),
    "e": Mix("short ranges: threads", scan=0.95, insert=0.05),
    "f": Mix("read-modify-write: user records", read=0.5, modify=0.5),
}


@dataclass(frozen=True, slots=True)
class YcsbWorkload:
    """The clients' operations: each starts at a random instant, at a random client.

    `warm_up` operations come first and are not counted. A scan has up to `max_scan_length` records.
    """

    mix: Mix = WORKLOADS["b"]
    operations: int = 100_000
    records: int = 1_000
    ops_per_s: float = 200.0
    clients: int = 10
    max_scan_length: int = 100
    warm_up: int = 0


@dataclass(frozen=True, slots=True)
class Schedule:
    """Accesses in the order in which they begin, as arrays of the same length.

    `records` is their number at the end; `operations` include those of the warm-up; `first`
    is the number of the first access that is counted.
    """

    begin_s: NDArray[np.float64]
    key: NDArray[np.int64]
    client: NDArray[np.int64]
    write: NDArray[np.bool_]
    records: int
    operations: int
    first: int


_READ, _UPDATE, _INSERT, _SCAN, _MODIFY = range(5)


def schedule(workload: YcsbWorkload, random: np.random.Generator) -> Schedule:
    count, mix = workload.warm_up + workload.operations, workload.mix
    begin = np.cumsum(random.exponential(1 / workload.ops_per_s, count))
    shares = (mix.read, mix.update, mix.insert, mix.scan, mix.modify)
    kind = random.choice(5, count, p=np.asarray(shares) / sum(shares))
    newest = workload.records - 1 + np.cumsum(kind == _INSERT)
    key = _keys(workload, newest, random)
    key = np.where(kind == _INSERT, newest, key)
    client = random.integers(0, workload.clients, count)
    length = np.where(kind == _SCAN, random.integers(1, workload.max_scan_length + 1, count), 1)
    length = np.minimum(length, newest - key + 1)
    count_start_s = begin[min(workload.warm_up, count - 1)]
    return _expand(begin, kind, key, client, length, int(newest[-1]) + 1, count_start_s)


def _keys(
    workload: YcsbWorkload, newest: NDArray[np.int64], random: np.random.Generator
) -> NDArray[np.int64]:
    """Draw records: random ones are popular, or the newest."""
    keys: NDArray[np.int64]
    rank = zipf(workload.records, len(newest), random)
    if workload.mix.latest:
        keys = np.maximum(newest - rank, 0)
    else:
        seasons = workload.mix.seasons
        season = np.arange(len(rank)) * seasons // len(rank)
        ranks = np.stack([random.permutation(workload.records) for _ in range(seasons)])
        keys = ranks[season, rank]
    return keys


def zipf(items: int, count: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Draw ranks, 0 for the most popular item, with YCSB's exponent."""
    weights = np.arange(1, items + 1, dtype=np.float64) ** -_THETA
    bounds = np.cumsum(weights)
    ranks: NDArray[np.int64] = np.searchsorted(bounds, random.random(count) * bounds[-1], "right")
    return np.minimum(ranks, items - 1)


def _expand(
    begin: NDArray[np.float64],
    kind: NDArray[np.int64],
    key: NDArray[np.int64],
    client: NDArray[np.int64],
    length: NDArray[np.int64],
    records: int,
    count_start_s: float,
) -> Schedule:
    """Expand scans and read-modify-writes to single accesses, in the order of their times."""
    # `arange - first` counts 0, 1, … within each scan.
    first = np.repeat(np.cumsum(length) - length, length)
    begins, keys = np.repeat(begin, length), np.repeat(key, length) + np.arange(len(first)) - first
    clients, writes = (
        np.repeat(client, length),
        np.repeat(np.isin(kind, (_UPDATE, _INSERT)), length),
    )
    modify = kind == _MODIFY
    begins = np.concatenate([begins, begin[modify] + _THINK_S])
    order = np.argsort(begins, kind="stable")
    begins = begins[order]
    return Schedule(
        begins,
        np.concatenate([keys, key[modify]])[order],
        np.concatenate([clients, client[modify]])[order],
        np.concatenate([writes, np.ones(int(modify.sum()), np.bool_)])[order],
        records,
        len(begin),
        int(np.searchsorted(begins, count_start_s)),
    )
