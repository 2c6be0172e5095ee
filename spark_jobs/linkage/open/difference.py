"""The share of links whose records each have more unshared than shared features.

Two products of one line agree in most words, so a model of fields links them; they differ in rare
features, such as a model number. Typing errors leave most n-grams of a word unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_jobs.linkage.compiled import compiled
from spark_jobs.linkage.open.spec import OpenSpec
from spark_jobs.linkage.open.strings import Rows, join_fields
from spark_jobs.linkage.open.whole.features import Features

__all__ = ["MAX_LINKS", "compared_texts", "differing_share"]

MAX_LINKS: Final = 10_000
"""Maximum links examined, in the order of their rows: these are hashes, so the links are random."""
_DIFFERENCE_RATIO: Final = 1.5
"""Minimum ratio of each record's unshared to the shared weight for records to seem different."""


def compared_texts(spec: OpenSpec) -> Sequence[str]:
    """Return the columns of prepared records that `differing_share` reads."""
    return ["row", *(f"c{at}" for at in range(len(spec.comparisons)))]


def differing_share(left: Rows, right: Rows, records: pa.Table) -> float:
    """Return the share of links, in [0, 1], whose records seem to be different things.

    Features are weighted by their rarity in `records`, as for similarity (`whole.neighbours`).

    Args:
        left: Rows of one end of each link; `right` has the other end.
        records: ``row`` and compared fields as text; at least of all ends.
    """
    if not len(left):
        return 0.0
    rows = records.column("row").to_numpy()
    order = np.argsort(rows)
    i, j = (order[np.searchsorted(rows, ends, sorter=order)] for ends in (left, right))
    fields = [records.column(name) for name in records.column_names if name != "row"]
    features = Features.of(join_fields(fields))
    different: NDArray[np.bool_] = _different(
        features.numbers, features.starts, features.weights() ** 2, i, j, _DIFFERENCE_RATIO
    )
    return float(different.mean())


@compiled
def _different(numbers: Any, starts: Any, weights: Any, i: Any, j: Any, limit: float) -> Any:
    different = np.zeros(len(i), np.bool_)
    for link in range(len(i)):
        x, y = starts[i[link]], starts[j[link]]
        end_x, end_y = starts[i[link] + 1], starts[j[link] + 1]
        both, only_i, only_j = 0.0, 0.0, 0.0
        while x < end_x or y < end_y:
            if y == end_y or (x < end_x and numbers[x] < numbers[y]):
                only_i += weights[numbers[x]]
                x += 1
            elif x == end_x or numbers[y] < numbers[x]:
                only_j += weights[numbers[y]]
                y += 1
            else:
                both += weights[numbers[x]]
                x += 1
                y += 1
        different[link] = min(only_i, only_j) > limit * both
    return different
