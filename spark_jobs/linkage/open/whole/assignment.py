"""Assigns at most one partner in each other table: the most similar pair first, with its lead.

The lead of a pair is its similarity less that of the best competitor, the next record that either
end could be paired with. Variants of one product are all similar; only the right one leads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spark_jobs.linkage.compiled import compiled
from spark_jobs.linkage.open.strings import Floats
from spark_jobs.linkage.open.whole.neighbours import Neighbours

__all__ = ["Assignment", "assign_pairs"]


class Assignment(NamedTuple):
    """The chosen pairs, the lead of each in [0, 1], and the rejected pairs."""

    chosen: Neighbours
    lead: Floats
    rejected: Neighbours


def assign_pairs(pairs: Neighbours, source: NDArray[np.int16]) -> Assignment:
    """Choose pairs greedily; ties are broken by records."""
    order = np.lexsort((pairs.j, pairs.i, -pairs.similarity))
    i, j, similarity = (values[order] for values in pairs)
    records, edges = len(source), np.arange(len(i))
    ends, partners = np.concatenate([i, j]), np.concatenate([j, i])
    by_end = np.lexsort((np.tile(edges, 2), ends))
    starts = np.searchsorted(ends[by_end], np.arange(records + 1))
    edge, partner = np.tile(edges, 2)[by_end], partners[by_end]
    chosen, lead = _assign(i, j, similarity, edge, partner, starts, source.astype(np.int64))
    return Assignment(
        Neighbours(i[chosen], j[chosen], similarity[chosen]),
        lead[chosen],
        Neighbours(i[~chosen], j[~chosen], similarity[~chosen]),
    )


@compiled
def _assign(
    i: Any, j: Any, similarity: Any, edge: Any, partner: Any, starts: Any, source: Any
) -> Any:
    # The tables in which a record has a partner, as bits: there are 16 at most.
    assigned_tables = np.zeros(len(source), np.int64)
    chosen, lead = np.zeros(len(i), np.bool_), np.zeros(len(i))
    for k in range(len(i)):
        a, b = i[k], j[k]
        if (assigned_tables[a] >> source[b]) & 1 or (assigned_tables[b] >> source[a]) & 1:
            continue
        competitor = max(
            _competitor(
                k, a, source[b], similarity, edge, partner, starts, source, assigned_tables
            ),
            _competitor(
                k, b, source[a], similarity, edge, partner, starts, source, assigned_tables
            ),
        )
        chosen[k], lead[k] = True, similarity[k] - competitor
        assigned_tables[a] |= 1 << source[b]
        assigned_tables[b] |= 1 << source[a]
    return chosen, lead


@compiled
def _competitor(
    pair: int,
    record: int,
    table: int,
    similarity: Any,
    edge: Any,
    partner: Any,
    starts: Any,
    source: Any,
    assigned_tables: Any,
) -> float:
    """Return the similarity of a record's best other free partner in a table."""
    for at in range(starts[record], starts[record + 1]):
        other = partner[at]
        free = not (assigned_tables[other] >> source[record]) & 1
        if edge[at] != pair and source[other] == table and free:
            return float(similarity[edge[at]])
    return 0.0
