"""Divides connected components into clusters: one wrong link must not join two people.

Both methods start with single records and join clusters: *average* joins clusters whose pairs have
a positive mean weight, *one per source* the ends of the best remaining link, unless a table would
occur twice. Ties are broken by rows, so the same pairs always give the same clusters. A known
cluster is never divided: *average* starts with it as with a single record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from spark_jobs.linkage.compiled import compiled
from spark_jobs.linkage.open.forest import components, root, roots
from spark_jobs.linkage.open.spec import Clustering
from spark_jobs.linkage.open.strings import Floats, Rows

__all__ = ["CERTAIN", "Links", "refine_components"]

CERTAIN: Final = 1000.0
"""Bits of a known link."""
MAX_MEMBERS: Final = 1_000
"""Maximum records or known clusters that *average* clusters together.

Larger components are first cut at their weakest links.
"""
_MAX_BITS: Final = 20.0


@dataclass(frozen=True, slots=True)
class Links:
    """All compared pairs inside some components: rows, log2 odds of a match, sources."""

    left: Rows
    right: Rows
    bits: Floats
    left_source: Rows
    right_source: Rows


def refine_components(links: Links, method: Clustering, min_bits: float) -> tuple[Rows, Rows]:
    """Divide components into clusters, by links of at least `min_bits`.

    Returns:
        Rows, ascending, and for each the least row of its cluster.
    """
    order = np.lexsort((links.right, links.left, -links.bits))
    rows, ends = np.unique(np.concatenate([links.left, links.right]), return_inverse=True)
    left, right = ends[: len(order)][order], ends[len(order) :][order]
    bits = links.bits[order]
    sources = np.zeros(len(rows), np.int64)
    sources[ends] = np.concatenate([links.left_source, links.right_source])
    linked = bits >= min_bits
    if method is Clustering.ONE_PER_SOURCE:
        return rows, rows[_one_per_source(left[linked], right[linked], bits[linked], sources)]
    firsts, nodes = _contract(left, right, bits >= CERTAIN, len(rows))
    left, right = nodes[left], nodes[right]
    distinct = left != right
    count = int(linked[distinct].sum())
    labels = _averages(left[distinct], right[distinct], bits[distinct], count, len(firsts))
    return rows, rows[firsts[labels][nodes]]


def _contract(left: Rows, right: Rows, known: NDArray[np.bool_], count: int) -> tuple[Rows, Rows]:
    """Contract known links: return the first member of each group, and each record's group."""
    owners = np.arange(count)
    members, firsts = components(left[known], right[known])
    owners[members] = firsts
    return np.unique(owners, return_inverse=True)


@compiled
def _one_per_source(left: Any, right: Any, bits: Any, sources: Any) -> Any:
    parents = np.arange(len(sources))
    source_bits = np.empty(len(sources), np.int64)
    for node in range(len(sources)):
        # The sources of a cluster as bits: there are 16 inputs at most.
        source_bits[node] = 1 << sources[node]
    for edge in range(len(left)):
        a, b = root(parents, left[edge]), root(parents, right[edge])
        if a != b and (source_bits[a] & source_bits[b] == 0 or bits[edge] >= CERTAIN):
            a, b = min(a, b), max(a, b)
            parents[b] = a
            source_bits[a] |= source_bits[b]
    return roots(parents)


@compiled
def _averages(left: Any, right: Any, bits: Any, linked: int, nodes: int) -> Any:
    pieces = _pieces(left[:linked], right[:linked], nodes)
    members = np.argsort(pieces, kind="mergesort")
    starts = np.searchsorted(pieces[members], np.arange(nodes + 1))
    rank = np.empty(nodes, np.int64)
    for at in range(nodes):
        rank[members[at]] = at - starts[pieces[members[at]]]
    same = np.flatnonzero(pieces[left] == pieces[right])
    of_piece = same[np.argsort(pieces[left[same]], kind="mergesort")]
    begins = np.searchsorted(pieces[left[of_piece]], np.arange(nodes + 1))
    labels = np.arange(nodes)
    for piece in range(nodes):
        inside = members[starts[piece] : starts[piece + 1]]
        edges = of_piece[begins[piece] : begins[piece + 1]]
        if len(inside) > 1:
            merged = _average(rank[left[edges]], rank[right[edges]], bits[edges], len(inside))
            for at in range(len(inside)):
                labels[inside[at]] = inside[merged[at]]
    return labels


@compiled
def _pieces(left: Any, right: Any, nodes: int) -> Any:
    """Return the components of strong links, limited to `MAX_MEMBERS`."""
    parents = np.arange(nodes)
    size = np.ones(nodes, np.int64)
    for edge in range(len(left)):
        a, b = root(parents, left[edge]), root(parents, right[edge])
        if a != b and size[a] + size[b] <= MAX_MEMBERS:
            a, b = min(a, b), max(a, b)
            parents[b] = a
            size[a] += size[b]
    return roots(parents)


@compiled
def _average(left: Any, right: Any, bits: Any, nodes: int) -> Any:
    """Join the two clusters with the highest mean weight of their pairs while it is positive."""
    total = np.zeros((nodes, nodes))
    count = np.zeros((nodes, nodes))
    for edge in range(len(left)):
        i, j, weight = left[edge], right[edge], bits[edge]
        # Bounded, so that no single pair outweighs all others.
        weight = max(-_MAX_BITS, min(_MAX_BITS, weight))
        total[i, j] += weight
        total[j, i] += weight
        count[i, j] += 1
        count[j, i] += 1
    labels = np.arange(nodes)
    best, mean = np.zeros(nodes, np.int64), np.full(nodes, -1.0)
    for i in range(nodes):
        best[i], mean[i] = _nearest(total, count, labels, i)
    while True:
        a = np.argmax(mean)
        if mean[a] < 0.0:
            return roots(labels)
        _join(total, count, labels, min(a, best[a]), max(a, best[a]))
        _update_nearest(total, count, labels, best, mean, min(a, best[a]), max(a, best[a]))


@compiled
def _nearest(total: Any, count: Any, labels: Any, i: int) -> Any:
    """Return the cluster with the highest mean weight to cluster i, and that mean; -1: none."""
    nearest, highest = i, -1.0
    for j in range(len(labels)):
        if j != i and labels[j] == j and count[i, j] > 0:
            mean = total[i, j] / count[i, j]
            if mean >= 0.0 and mean > highest:
                nearest, highest = j, mean
    return nearest, highest


@compiled
def _join(total: Any, count: Any, labels: Any, a: int, b: int) -> None:
    labels[b] = a
    for j in range(len(labels)):
        if labels[j] == j and j != a:
            total[a, j] += total[b, j]
            total[j, a] += total[j, b]
            count[a, j] += count[b, j]
            count[j, a] += count[j, b]


@compiled
def _update_nearest(
    total: Any, count: Any, labels: Any, best: Any, mean: Any, a: int, b: int
) -> None:
    mean[b] = -1.0
    for i in range(len(labels)):
        # Only clusters whose nearest cluster may have changed.
        if labels[i] == i and (i == a or best[i] == a or best[i] == b or count[i, a] > 0):
            best[i], mean[i] = _nearest(total, count, labels, i)
