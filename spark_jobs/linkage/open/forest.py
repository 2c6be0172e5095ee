"""Connected components without joins: edges are reduced to spanning forests, by partition.

A spanning forest of a partition's edges connects the same nodes as all edges, with fewer edges than
nodes. Tasks reduce their edges to forests, fewer tasks reduce these, and the last task labels the
nodes. There are no joins and no checkpoints, and the rounds grow with the logarithm of the edges;
the last task holds 16 bytes for every linked node.
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
_FAN_IN: Final = 8
_MAX_TASKS: Final = 4096


def connected(edges: DataFrame, count: int) -> DataFrame:
    """Label the components of about `count` edges, ``l`` and ``r``.

    Returns:
        ``row`` and ``component``, its least row; without isolated nodes.
    """
    tasks = min(_MAX_TASKS, count // _TASK_EDGES)
    while tasks > 1:
        edges = edges.repartition(tasks).mapInArrow(_forest, "l long, r long")
        tasks //= _FAN_IN
    return edges.repartition(1).mapInArrow(_labels, "row long, component long")


def _forest(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    left, right = _read(batches)
    forest = spanning(left, right)
    yield pa.RecordBatch.from_pydict({"l": left[forest], "r": right[forest]})


def _labels(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows, labels = components(*_read(batches))
    yield pa.RecordBatch.from_pydict({"row": rows, "component": labels})


def _read(batches: Iterable[pa.RecordBatch]) -> tuple[Rows, Rows]:
    parts = [(batch.column("l").to_numpy(), batch.column("r").to_numpy()) for batch in batches]
    empty = np.empty(0, np.int64)
    left, right = zip(*parts, strict=True) if parts else ((empty,), (empty,))
    return np.concatenate(left), np.concatenate(right)


def spanning(left: Rows, right: Rows) -> Rows:
    """Return the indices of edges that form a spanning forest."""
    rows, ends = np.unique(np.concatenate([left, right]), return_inverse=True)
    _, joins = _union(ends[: len(left)], ends[len(left) :], len(rows))
    return np.flatnonzero(joins)


def components(left: Rows, right: Rows) -> tuple[Rows, Rows]:
    """Return the nodes of edges, ascending, and the least node of each one's component."""
    rows, ends = np.unique(np.concatenate([left, right]), return_inverse=True)
    parents, _ = _union(ends[: len(left)], ends[len(left) :], len(rows))
    return rows, rows[parents]


@compiled
def _union(left: Any, right: Any, nodes: int) -> Any:
    """Return the least node of each node's set, and which edges joined two sets."""
    parents = np.arange(nodes)
    joins = np.zeros(len(left), np.bool_)
    for edge in range(len(left)):
        a, b = root(parents, left[edge]), root(parents, right[edge])
        if a != b:
            joins[edge] = True
            # The lesser root stays: a root is the least node of its set.
            parents[max(a, b)] = min(a, b)
    return roots(parents), joins


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
    """Set every node's parent to its root; return the same array."""
    for node in range(len(parents)):
        parents[node] = root(parents, node)
    return parents
