"""Agreement by chance: patterns of random pairs of sampled records, which give u.

A comparable pair is drawn as it would be drawn from all records. If records of one table are not
compared with each other, each table has its own sample: in a joint sample a small table might have
no record, and so no pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from spark_jobs.linkage.open.agreement import Columns, pattern_codes, vectors
from spark_jobs.linkage.open.spec import OpenSpec
from spark_jobs.linkage.open.strings import Floats, Rows

__all__ = ["SAMPLE", "random_patterns"]

SAMPLE: Final = 10_000
"""Maximum records of all samples together."""


class _WeightedPairs(NamedTuple):
    """Pairs of the sample, and the number of pairs each one stands for."""

    i: Rows
    j: Rows
    weights: Floats


class _Between(NamedTuple):
    """Two samples, by the positions of their records, and their tables' share of all pairs."""

    left: Rows
    right: Rows
    share: float

    @property
    def pairs(self) -> int:
        return len(self.left) * len(self.right)


def random_patterns(
    sample: pa.Table, sizes: Sequence[int], spec: OpenSpec, max_pairs: int
) -> tuple[Rows, Floats]:
    """Return the patterns of random pairs of sampled records, and the number of pairs of each.

    If the sample has at most `max_pairs` pairs, each is compared once.

    Args:
        sample: Even samples of the prepared records: one of all tables if records of one table are
            compared with each other, otherwise one of each table.
        sizes: The number of records of each table.
        spec: Its comparisons, whether tables are compared with themselves, and the seed.
        max_pairs: Maximum pairs that are compared.
    """
    random = np.random.default_rng(spec.seed)
    if spec.within:
        pairs = _pairs_within(sample.num_rows, max_pairs, random)
    else:
        pairs = _pairs_between(_samples(sample, sizes), max_pairs, random)
    levels = vectors(spec.comparisons, Columns(sample), pairs.i, pairs.j)
    patterns, at = np.unique(pattern_codes(spec.comparisons, levels), return_inverse=True)
    return patterns, np.bincount(at, pairs.weights, len(patterns)).astype(np.float64)


def _pairs_within(size: int, max_pairs: int, random: np.random.Generator) -> _WeightedPairs:
    if size * (size - 1) // 2 <= max_pairs:
        i, j = np.triu_indices(size, 1)
    else:
        i, j = random.integers(0, size, (2, max_pairs))
    distinct = i != j
    return _WeightedPairs(i[distinct], j[distinct], np.ones(int(distinct.sum())))


def _samples(sample: pa.Table, sizes: Sequence[int]) -> list[_Between]:
    source = sample.column("source").to_numpy()
    members = [np.flatnonzero(source == at) for at in range(len(sizes))]
    products = [(a, b, float(sizes[a]) * sizes[b]) for a, b in combinations(range(len(sizes)), 2)]
    total = max(1.0, sum(product for _, _, product in products))
    return [_Between(members[a], members[b], product / total) for a, b, product in products]


def _pairs_between(
    samples: Sequence[_Between], max_pairs: int, random: np.random.Generator
) -> _WeightedPairs:
    pairs = sum(between.pairs for between in samples)
    if pairs <= max_pairs:
        parts = [_all_pairs(between, pairs) for between in samples if between.pairs]
    else:
        counts = random.multinomial(max_pairs, [between.share for between in samples])
        parts = [_draw_pairs(*draw, random) for draw in zip(samples, counts.tolist(), strict=True)]
    empty = _WeightedPairs(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
    return _WeightedPairs(*(np.concatenate(arrays) for arrays in zip(empty, *parts, strict=True)))


def _all_pairs(between: _Between, pairs: int) -> _WeightedPairs:
    """Return all pairs of two samples, weighted by their tables' share of `pairs`."""
    i = np.repeat(between.left, len(between.right))
    j = np.tile(between.right, len(between.left))
    return _WeightedPairs(i, j, np.full(between.pairs, between.share * pairs / between.pairs))


def _draw_pairs(between: _Between, count: int, random: np.random.Generator) -> _WeightedPairs:
    i, j = (
        side[random.integers(0, len(side), count)] if count else side[:0]
        for side in (between.left, between.right)
    )
    return _WeightedPairs(i, j, np.ones(count))
