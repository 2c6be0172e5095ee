"""Interleaved rounds: every side is measured in turn, so that noise disturbs all of them alike.

What a side leaves behind, as work for the relays, disturbs the one that follows: every other round
goes backwards, so that none always follows the same one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

__all__ = ["interleaved"]

T = TypeVar("T")


async def interleaved(
    rounds: int, measures: Mapping[str, Callable[[], Awaitable[T]]]
) -> dict[str, list[T]]:
    """Measure every side once in each round, one after the other.

    Args:
        rounds: How many rounds.
        measures: Measures one side, by its name.

    Returns:
        What was measured of each side, in order.
    """
    measured: dict[str, list[T]] = {name: [] for name in measures}
    turns = tuple(measures.items())
    for number in range(rounds):
        for name, measure in turns if number % 2 == 0 else turns[::-1]:
            measured[name].append(await measure())
    return measured
