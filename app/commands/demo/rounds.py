"""Interleaved rounds: every candidate is measured in turn, so that noise disturbs all alike.

Leftovers of one candidate, such as work for the relays, disturb the next: every other round goes
backwards, so that no candidate always follows the same one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

__all__ = ["interleaved"]

T = TypeVar("T")


async def interleaved(
    rounds: int, measures: Mapping[str, Callable[[], Awaitable[T]]]
) -> dict[str, list[T]]:
    """Measure every candidate once in each round; return the measurements of each, in order."""
    measurements: dict[str, list[T]] = {name: [] for name in measures}
    order = tuple(measures.items())
    for number in range(rounds):
        for name, measure in order if number % 2 == 0 else order[::-1]:
            measurements[name].append(await measure())
    return measurements
