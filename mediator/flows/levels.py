"""The level of a flow: which attributes its messages are queued by, so that lookups cost least.

Each lookup of a plan is a level that messages may be queued by. One that is not at the top is
executed once for each of its values within each partition. What that costs, with any level at the
top, is counted on messages that were executed lately.
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
"""Messages whose values are known: as if they were queued together."""

_CHOSEN_EVERY: Final = 100
"""Messages from one choice to the next."""

_GAIN: Final = 0.8
"""Of the cost of the present level: another one must cost less, so that none alternate."""

_WEIGHT: Final = 0.2
"""Of the newest cost in an average."""


@dataclass(eq=False)
class LevelChoice:
    """Counts the values of a flow's levels, and chooses the one to queue by."""

    _plan: Plan
    _costs: list[float] = field(init=False)
    """Seconds of the lookups of each level, for each of its values."""

    _selectivities: list[float | None] = field(init=False)
    _window: deque[tuple[int, ...]] = field(init=False)
    _unseen: int = field(default=_CHOSEN_EVERY, init=False)
    """Messages until the next choice."""

    def __post_init__(self) -> None:
        self._costs = [0.0 for _ in self._plan.levels]
        self._selectivities = [None for _ in self._plan.levels]
        self._window = deque(maxlen=_WINDOW)

    def executed(
        self, messages: Iterable[Mapping[str, Any]], shared_s: Mapping[Grain, float]
    ) -> None:
        """Add a batch, and what its shared operators took by what they depend on (s)."""
        levels = self._plan.levels
        rows = [tuple(hash(canonical(each, level)) for level in levels) for each in messages]
        self._window.extend(rows)
        self._unseen -= len(rows)
        for number, level in enumerate(levels):
            values = len({row[number] for row in rows})
            cost_s = shared_s.get(frozenset(level), 0.0) / values
            known = self._costs[number]
            self._costs[number] = known + _WEIGHT * (cost_s - known) if known else cost_s

    def choose(self, present: int) -> int:
        """Return the level to queue by from now on, from time to time another than before."""
        if self._unseen > 0:
            return present
        self._unseen = _CHOSEN_EVERY
        levels = range(len(self._costs))
        self._selectivities = [1 / self._distinct(level, level) for level in levels]
        costs = dict.fromkeys(levels, 0.0)
        for top, level in product(levels, levels):
            costs[top] += self._costs[level] * self._distinct(top, level)
        best = min(levels, key=costs.__getitem__)
        return best if costs[best] < _GAIN * costs[present] else present

    def _distinct(self, top: int, level: int) -> int:
        """Return how often lookups of a level are executed, with another one at the top."""
        return len({(row[top], row[level]) for row in self._window})

    def document(self) -> list[dict[str, Any]]:
        """Return the levels with what was measured of them as JSON."""
        measured = zip(self._plan.levels, self._selectivities, self._costs, strict=True)
        return [
            {"attributes": describe_grain(level), "selectivity": selectivity, "lookup_s": cost_s}
            for level, selectivity, cost_s in measured
        ]
