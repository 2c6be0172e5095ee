"""The level of a flow: the attributes by which its messages are queued to minimise lookup costs.

Each lookup of a plan is a level by which messages can be queued. A lookup below the top level is
executed once for each of its values within each partition. The costs with each level at the top are
computed from recently executed messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Final

from mediator.flows.partitioning import Grain, canonical, describe_grain
from mediator.flows.plan import Plan

__all__ = ["LevelChoice"]

_WINDOW: Final = 1_000
"""Recent messages whose values are compared, as if they were queued together."""

_CHOICE_INTERVAL: Final = 100
"""Messages between two choices."""

_MAX_COST_RATIO: Final = 0.8
"""Maximum cost of a new level relative to the current one, to avoid oscillation."""

_WEIGHT: Final = 0.2
"""Weight of the newest cost in an average."""


@dataclass(eq=False)
class LevelChoice:
    """Counts the values of a flow's levels, and chooses the one to queue by."""

    _plan: Plan
    _costs: list[float] = field(init=False)
    """Lookup time of each level, in seconds per value."""

    _selectivities: list[float | None] = field(init=False)
    _window: deque[tuple[int, ...]] = field(init=False)
    _remaining: int = field(default=_CHOICE_INTERVAL, init=False)
    """Messages until the next choice."""

    def __post_init__(self) -> None:
        self._costs = [0.0 for _ in self._plan.levels]
        self._selectivities = [None for _ in self._plan.levels]
        self._window = deque(maxlen=_WINDOW)

    def add_batch(
        self, messages: Iterable[Mapping[str, Any]], shared_s: Mapping[Grain, float]
    ) -> None:
        """Add a batch, with the seconds of its shared operators by their attributes."""
        levels = self._plan.levels
        rows = [tuple(hash(canonical(message, level)) for level in levels) for message in messages]
        self._window.extend(rows)
        self._remaining -= len(rows)
        for number, level in enumerate(levels):
            values = len({row[number] for row in rows})
            cost_s = shared_s.get(frozenset(level), 0.0) / values
            average = self._costs[number]
            self._costs[number] = average + _WEIGHT * (cost_s - average) if average else cost_s

    def choose(self, current: int) -> int:
        """Return the level to queue by from now on; it changes only from time to time."""
        if self._remaining > 0:
            return current
        self._remaining = _CHOICE_INTERVAL
        levels = range(len(self._costs))
        self._selectivities = [1 / self._distinct(level, level) for level in levels]
        costs = dict.fromkeys(levels, 0.0)
        for top, level in product(levels, levels):
            costs[top] += self._costs[level] * self._distinct(top, level)
        best = min(levels, key=costs.__getitem__)
        return best if costs[best] < _MAX_COST_RATIO * costs[current] else current

    def _distinct(self, top: int, level: int) -> int:
        """Return how often a level's lookups are executed with another level at the top."""
        return len({(row[top], row[level]) for row in self._window})

    def document(self) -> list[dict[str, Any]]:
        """Return the levels with their measurements as JSON."""
        rows = zip(self._plan.levels, self._selectivities, self._costs, strict=True)
        return [
            {"attributes": describe_grain(level), "selectivity": selectivity, "lookup_s": cost_s}
            for level, selectivity, cost_s in rows
        ]
