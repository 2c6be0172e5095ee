"""The most similar records of each record, by an inverted index that is read rare features first.

Similarity is the cosine of the vectors of features, each weighted by its rarity (TF-IDF). What a
record may read of the index is bounded, so the work is linear in the number of records; what is
left unread are the most frequent features, which say least.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spark_jobs.linkage.compiled import compiled
from spark_jobs.linkage.open.strings import Floats, Rows
from spark_jobs.linkage.open.whole.features import Features

__all__ = ["Neighbours", "neighbours"]

_POSTINGS: Final = 20_000
"""Postings that are read for one record."""
_SELECTED: Final = 4
"""Candidates for each neighbour that is kept; their similarity is computed from all features."""


class Neighbours(NamedTuple):
    """Pairs of records, i < j, each once, and how similar they are, in (0, 1]."""

    i: Rows
    j: Rows
    similarity: Floats


def neighbours(
    features: Features, source: NDArray[np.int16], most: int, *, within: bool
) -> Neighbours:
    """Find the pairs of which one is among the `most` most similar records of the other.

    Args:
        features: Of all records.
        source: The number of each record's table.
        most: Neighbours of a record.
        within: Whether records of one table are neighbours.
    """
    weights = features.weights()
    postings, begins = _postings(features.numbers, features.starts, len(features.counts))
    norms = _norms(features.numbers, features.starts, weights)
    i, j, similarity = _nearest(
        features.numbers, features.starts, weights, postings, begins, norms, source, within, most
    )
    pairs = np.minimum(i, j) * features.records + np.maximum(i, j)
    _, once = np.unique(pairs, return_index=True)
    return Neighbours(np.minimum(i, j)[once], np.maximum(i, j)[once], similarity[once])


@compiled
def _postings(numbers: Any, starts: Any, features: int) -> Any:
    """The records of each feature, and where those of each begin."""
    begins = np.zeros(features + 1, np.int64)
    for at in range(len(numbers)):
        begins[numbers[at] + 1] += 1
    begins = np.cumsum(begins)
    postings, free = np.empty(len(numbers), np.int64), begins.copy()
    for record in range(len(starts) - 1):
        for at in range(starts[record], starts[record + 1]):
            postings[free[numbers[at]]] = record
            free[numbers[at]] += 1
    return postings, begins


@compiled
def _norms(numbers: Any, starts: Any, weights: Any) -> Any:
    norms = np.zeros(len(starts) - 1)
    for record in range(len(norms)):
        for at in range(starts[record], starts[record + 1]):
            norms[record] += weights[numbers[at]] ** 2
    return np.sqrt(norms)


@compiled
def _nearest(
    numbers: Any,
    starts: Any,
    weights: Any,
    postings: Any,
    begins: Any,
    norms: Any,
    source: Any,
    within: bool,
    most: int,
) -> Any:
    records = len(norms)
    left, right = np.empty(records * most, np.int64), np.empty(records * most, np.int64)
    similarity, end = np.empty(records * most), 0
    common, met = np.zeros(records), np.empty(_POSTINGS, np.int64)
    for i in range(records):
        count, budget = 0, _POSTINGS
        for at in range(starts[i], starts[i + 1]):
            feature = numbers[at]
            budget -= begins[feature + 1] - begins[feature]
            if budget < 0:
                break
            for k in range(begins[feature], begins[feature + 1]):
                j = postings[k]
                if j != i and (within or source[i] != source[j]):
                    if common[j] == 0.0:
                        met[count] = j
                        count += 1
                    common[j] += weights[feature] ** 2
        found = met[:count]
        scores = common[found] / norms[found]
        common[found] = 0.0
        chosen = found[np.argsort(-scores, kind="mergesort")[: most * _SELECTED]]
        exact = np.empty(len(chosen))
        for k in range(len(chosen)):
            exact[k] = _cosine(numbers, starts, weights, norms, i, chosen[k])
        best = np.argsort(-exact, kind="mergesort")[:most]
        for k in best:
            left[end], right[end], similarity[end] = i, chosen[k], exact[k]
            end += 1
    return left[:end], right[:end], similarity[:end]


@compiled
def _cosine(numbers: Any, starts: Any, weights: Any, norms: Any, i: int, j: int) -> float:
    x, y, common = starts[i], starts[j], 0.0
    while x < starts[i + 1] and y < starts[j + 1]:
        if numbers[x] == numbers[y]:
            common += weights[numbers[x]] ** 2
        step, step_y = numbers[x] <= numbers[y], numbers[y] <= numbers[x]
        x += step
        y += step_y
    return float(common / (norms[i] * norms[j]))
