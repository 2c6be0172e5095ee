"""Interleaved rounds: every side is measured in turn, so that noise disturbs all of them alike."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

__all__ = ["interleaved"]

T = TypeVar("T")


async def interleaved(
    rounds: int, sides: Mapping[str, Callable[[], Awaitable[T]]]
) -> dict[str, list[T]]:
    """Measure every side once in each round, one after the other.

    Args:
        rounds: How many rounds.
        sides: Measures one side, by its name.

    Returns:
        What was measured of each side, in order.
    """
    measured: dict[str, list[T]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, measure in sides.items():
            measured[name].append(await measure())
    return measured
