"""Agreement by chance: the patterns of random pairs of a sample of records, from which u follows.

A pair that may be compared is drawn as it would be drawn of all records. Where records of one table
are not compared, each table has a sample of its own: in one sample of all of them a small table
might have no record, and no pair would be left.
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
"""Records of all samples together at most."""


class _WeightedPairs(NamedTuple):
    """Pairs of the sample, and how many each counts for."""

    i: Rows
    j: Rows
    weights: Floats


class _Between(NamedTuple):
    """Two samples, by the places of their records, and the share of their tables in all pairs."""

    left: Rows
    right: Rows
    share: float

    @property
    def pairs(self) -> int:
        return len(self.left) * len(self.right)


def random_patterns(
    sample: pa.Table, sizes: Sequence[int], spec: OpenSpec, most: int
) -> tuple[Rows, Floats]:
    """Patterns of random pairs of sampled records, and how many pairs show each.

    If the sample has no more than `most` pairs, all are compared, once each.

    Args:
        sample: Even samples of the prepared records: of all together if records of one table are
            compared with each other, otherwise of each table.
        sizes: The number of records of each table.
        spec: Its comparisons, whether tables are compared with themselves, and the seed.
        most: Pairs that are compared.
    """
    random = np.random.default_rng(spec.seed)
    if spec.within:
        pairs = _anywhere(sample.num_rows, most, random)
    else:
        pairs = _across(_samples(sample, sizes), most, random)
    levels = vectors(spec.comparisons, Columns(sample), pairs.i, pairs.j)
    patterns, at = np.unique(pattern_codes(spec.comparisons, levels), return_inverse=True)
    return patterns, np.bincount(at, pairs.weights, len(patterns)).astype(np.float64)


def _anywhere(size: int, most: int, random: np.random.Generator) -> _WeightedPairs:
    if size * (size - 1) // 2 <= most:
        i, j = np.triu_indices(size, 1)
    else:
        i, j = random.integers(0, size, (2, most))
    other = i != j
    return _WeightedPairs(i[other], j[other], np.ones(int(other.sum())))


def _samples(sample: pa.Table, sizes: Sequence[int]) -> list[_Between]:
    source = sample.column("source").to_numpy()
    members = [np.flatnonzero(source == at) for at in range(len(sizes))]
    products = [(a, b, float(sizes[a]) * sizes[b]) for a, b in combinations(range(len(sizes)), 2)]
    total = max(1.0, sum(product for _, _, product in products))
    return [_Between(members[a], members[b], product / total) for a, b, product in products]


def _across(samples: Sequence[_Between], most: int, random: np.random.Generator) -> _WeightedPairs:
    pairs = sum(between.pairs for between in samples)
    if pairs <= most:
        chosen = [_all(between, pairs) for between in samples if between.pairs]
    else:
        drawn = random.multinomial(most, [between.share for between in samples])
        chosen = [_drawn(*each, random) for each in zip(samples, drawn.tolist(), strict=True)]
    none = _WeightedPairs(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
    return _WeightedPairs(*(np.concatenate(each) for each in zip(none, *chosen, strict=True)))


def _all(between: _Between, pairs: int) -> _WeightedPairs:
    """All pairs of two samples; they count for their tables' share of `pairs`."""
    i = np.repeat(between.left, len(between.right))
    j = np.tile(between.right, len(between.left))
    return _WeightedPairs(i, j, np.full(between.pairs, between.share * pairs / between.pairs))


def _drawn(between: _Between, count: int, random: np.random.Generator) -> _WeightedPairs:
    i, j = (
        side[random.integers(0, len(side), count)] if count else side[:0]
        for side in (between.left, between.right)
    )
    return _WeightedPairs(i, j, np.ones(count))
