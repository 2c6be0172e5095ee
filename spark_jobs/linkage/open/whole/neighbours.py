"""Finds the most similar records of each record, by an inverted index read rare features first.

Similarity is the cosine of the feature vectors, weighted by rarity (TF-IDF). The postings read per
record are bounded, so the work is linear in the number of records; the unread features are the most
frequent ones, which have the least weight.
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
"""Maximum postings read for one record."""
_CANDIDATES_PER_NEIGHBOUR: Final = 4
"""Candidates per neighbour; their similarity is computed from all features."""


class Neighbours(NamedTuple):
    """Distinct pairs of records, i < j, and their similarity, in (0, 1]."""

    i: Rows
    j: Rows
    similarity: Floats


def neighbours(
    features: Features, source: NDArray[np.int16], limit: int, *, within: bool
) -> Neighbours:
    """Find the pairs in which one record is among the `limit` most similar records of the other.

    Args:
        features: The features of all records.
        source: The number of each record's table.
        limit: Maximum neighbours of a record.
        within: Whether records of one table can be neighbours.
    """
    weights = features.weights()
    postings, begins = _postings(features.numbers, features.starts, len(features.counts))
    norms = _norms(features.numbers, features.starts, weights)
    i, j, similarity = _nearest(
        features.numbers, features.starts, weights, postings, begins, norms, source, within, limit
    )
    pairs = np.minimum(i, j) * features.records + np.maximum(i, j)
    _, unique = np.unique(pairs, return_index=True)
    return Neighbours(np.minimum(i, j)[unique], np.maximum(i, j)[unique], similarity[unique])


@compiled
def _postings(numbers: Any, starts: Any, features: int) -> Any:
    """Return the records of each feature, and the start of each feature's records."""
    begins = np.zeros(features + 1, np.int64)
    for at in range(len(numbers)):
        begins[numbers[at] + 1] += 1
    begins = np.cumsum(begins)
    postings, next_free = np.empty(len(numbers), np.int64), begins.copy()
    for record in range(len(starts) - 1):
        for at in range(starts[record], starts[record + 1]):
            postings[next_free[numbers[at]]] = record
            next_free[numbers[at]] += 1
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
    limit: int,
) -> Any:
    records = len(norms)
    left, right = np.empty(records * limit, np.int64), np.empty(records * limit, np.int64)
    similarity, end = np.empty(records * limit), 0
    common, visited = np.zeros(records), np.empty(_POSTINGS, np.int64)
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
                        visited[count] = j
                        count += 1
                    common[j] += weights[feature] ** 2
        candidates = visited[:count]
        scores = common[candidates] / norms[candidates]
        common[candidates] = 0.0
        chosen = candidates[
            np.argsort(-scores, kind="mergesort")[: limit * _CANDIDATES_PER_NEIGHBOUR]
        ]
        exact = np.empty(len(chosen))
        for k in range(len(chosen)):
            exact[k] = _cosine(numbers, starts, weights, norms, i, chosen[k])
        best = np.argsort(-exact, kind="mergesort")[:limit]
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
