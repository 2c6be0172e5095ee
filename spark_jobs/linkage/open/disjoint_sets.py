"""Disjoint sets as an array of parents, for kernels; a root is its own parent."""

from __future__ import annotations

from typing import Any

from numba import njit

__all__ = ["root", "roots"]


@njit(cache=True, nogil=True)
def root(parents: Any, node: int) -> int:
    """Return the root of a node's set; what is passed moves closer to it."""
    while parents[node] != node:
        parents[node] = parents[parents[node]]
        node = parents[node]
    return node


@njit(cache=True, nogil=True)
def roots(parents: Any) -> Any:
    """Let every node's parent be its root; returns the same array."""
    for node in range(len(parents)):
        parents[node] = root(parents, node)
    return parents
