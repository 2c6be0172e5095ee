"""Connected components without iterations: edges are reduced to forests, partition by partition.

A spanning forest of a partition's edges connects the same nodes as all of them, and has fewer edges
than nodes. So tasks make forests of their edges, fewer tasks of these, and the last one labels the
nodes. There are no joins, no checkpoints, and as many rounds as the logarithm of the edges; the
last task holds 16 bytes for every node that has a link.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from spark_jobs.linkage.compiled import compiled
from spark_jobs.linkage.open.strings import Rows

__all__ = ["components", "connected", "root", "roots", "spanning"]

_TASK_EDGES: Final = 1_000_000
_FEWER: Final = 8
_MOST_TASKS: Final = 4096


def connected(edges: DataFrame, count: int) -> DataFrame:
    """Label what about `count` edges, ``l`` and ``r``, connect.

    Returns:
        ``row`` and ``component``, the least row of it; nodes without edges are left out.
    """
    tasks = min(_MOST_TASKS, count // _TASK_EDGES)
    while tasks > 1:
        edges = edges.repartition(tasks).mapInArrow(_forest, "l long, r long")
        tasks //= _FEWER
    return edges.repartition(1).mapInArrow(_labels, "row long, component long")


def _forest(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    left, right = _read(batches)
    kept = spanning(left, right)
    yield pa.RecordBatch.from_pydict({"l": left[kept], "r": right[kept]})


def _labels(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows, labels = components(*_read(batches))
    yield pa.RecordBatch.from_pydict({"row": rows, "component": labels})


def _read(batches: Iterable[pa.RecordBatch]) -> tuple[Rows, Rows]:
    parts = [(batch.column("l").to_numpy(), batch.column("r").to_numpy()) for batch in batches]
    none = np.empty(0, np.int64)
    left, right = zip(*parts, strict=True) if parts else ((none,), (none,))
    return np.concatenate(left), np.concatenate(right)


def spanning(left: Rows, right: Rows) -> Rows:
    """The numbers of edges that make a spanning forest of all these."""
    rows, ends = np.unique(np.concatenate([left, right]), return_inverse=True)
    _, kept = _union(ends[: len(left)], ends[len(left) :], len(rows))
    return np.flatnonzero(kept)


def components(left: Rows, right: Rows) -> tuple[Rows, Rows]:
    """The nodes of edges, ascending, and for each the least node that it is connected with."""
    rows, ends = np.unique(np.concatenate([left, right]), return_inverse=True)
    parents, _ = _union(ends[: len(left)], ends[len(left) :], len(rows))
    return rows, rows[parents]


@compiled
def _union(left: Any, right: Any, nodes: int) -> Any:
    """The least node of each node's set, and which edges joined two sets."""
    parents = np.arange(nodes)
    kept = np.zeros(len(left), np.bool_)
    for edge in range(len(left)):
        a, b = root(parents, left[edge]), root(parents, right[edge])
        if a != b:
            kept[edge] = True
            # The lesser root stays: a root is the least node of its set.
            parents[max(a, b)] = min(a, b)
    return roots(parents), kept


@compiled
def root(parents: Any, node: int) -> int:
    """Return the root of a node's set in an array of parents; a root is its own parent."""
    while parents[node] != node:
        # Path halving: later searches from the nodes on this path are shorter.
        parents[node] = parents[parents[node]]
        node = parents[node]
    return node


@compiled
def roots(parents: Any) -> Any:
    """Let every node's parent be its root; returns the same array."""
    for node in range(len(parents)):
        parents[node] = root(parents, node)
    return parents
