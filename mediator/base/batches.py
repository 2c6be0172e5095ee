"""Batches of items that have sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

__all__ = ["batches_by_size"]

T = TypeVar("T")


def batches_by_size(
    items: Iterable[T], size_of: Callable[[T], int], max_items: int, max_bytes: int
) -> Iterator[list[T]]:
    """Divide items, in their order, into batches of up to `max_items` items and `max_bytes`.

    A larger item is its own batch.

    Args:
        size_of: Returns the size of an item in bytes.
    """
    batch: list[T] = []
    total = 0
    for item in items:
        size = size_of(item)
        if batch and (len(batch) == max_items or total + size > max_bytes):
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += size
    if batch:
        yield batch
