"""Batches of items that have sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

__all__ = ["batches_by_size"]

T = TypeVar("T")


def batches_by_size(
    items: Iterable[T], size_of: Callable[[T], int], most: int, most_bytes: int
) -> Iterator[list[T]]:
    """Divide items, in their order, into batches of up to `most` items and `most_bytes`.

    An item that is larger than that is a batch of its own.

    Args:
        size_of: Returns the size of an item in bytes.
    """
    batch: list[T] = []
    total = 0
    for item in items:
        size = size_of(item)
        if batch and (len(batch) == most or total + size > most_bytes):
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += size
    if batch:
        yield batch
