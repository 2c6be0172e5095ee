"""Slow or refused queries, by shape; each process records its own."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from time import time
from typing import Final

from mediator.base.observation import CostlyQueryFound, Observation

__all__ = ["CostlyQueries", "CostlyShape"]

_MAX_SHAPES: Final = 100
"""Maximum recorded shapes; clients choose them, so the least recently seen is evicted."""


@dataclass(slots=True)
class CostlyShape:
    """How often queries of one shape were costly.

    Attributes:
        last: The latest costly query.
        last_s: Its time in seconds since 1970.
        answered: How many were slow.
        refused: How many were refused.
        seconds: Total time of the answered ones.
        slowest_s: The longest time of one.
        rows: The maximum of records that stores sent for one.
    """

    last: CostlyQueryFound
    last_s: float = 0.0
    answered: int = 0
    refused: int = 0
    seconds: float = 0.0
    slowest_s: float = 0.0
    rows: int = 0

    def add(self, event: CostlyQueryFound) -> None:
        self.last, self.last_s = event, time()
        if event.refusal is not None:
            self.refused += 1
            return
        self.answered += 1
        self.seconds += event.seconds
        self.slowest_s = max(self.slowest_s, event.seconds)
        self.rows = max(self.rows, event.rows or 0)


class CostlyQueries:
    def __init__(self) -> None:
        self._shapes: OrderedDict[tuple[str, str, str], CostlyShape] = OrderedDict()

    def observe(self, event: Observation) -> None:
        if not isinstance(event, CostlyQueryFound):
            return
        key = event.database, event.class_name, event.shape
        shape = self._shapes.pop(key, None) or CostlyShape(event)
        shape.add(event)
        self._shapes[key] = shape
        if len(self._shapes) > _MAX_SHAPES:
            self._shapes.popitem(last=False)

    @property
    def shapes(self) -> list[CostlyShape]:
        """Return the shapes, by total time and then by refusals, in descending order."""
        shapes = self._shapes.values()
        return sorted(shapes, key=lambda shape: (shape.seconds, shape.refused), reverse=True)
