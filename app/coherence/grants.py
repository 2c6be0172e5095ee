"""What reads were granted a moment ago, to be used again without asking the sketch.

A report moves the latest end of life of a key's copies. Whoever hands out a further copy that ends
no later changes nothing of what the sketch knows: a write that begins meanwhile has every copy up
to that end in the filter, the further ones too. So a replica that reads a key again uses what is
left of its last grant, as long as most of the life it wants is left (docs/coherence.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from mediator.routing.model import ClassRoute
from sketch.protocol.port import Grant

__all__ = ["Grants", "Location"]

Location = tuple[str, str, str, tuple[str, ...]]
"""Database, class, id, and the cache groups that are shown."""

_MOST: Final = 10_000
_ENOUGH: Final = 0.75
"""The share of the life wanted that must be left: what is used again gives shorter lives."""


@dataclass(frozen=True, slots=True)
class _Granted:
    route: ClassRoute
    asked_s: float
    grant: Grant


class Grants:
    """The latest grant of each place, within a number of places.

    Args:
        most: How many places are remembered.
    """

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._granted: dict[Location, _Granted] = {}

    def keep(self, place: Location, route: ClassRoute, grant: Grant, asked_s: float) -> None:
        """Remember what was granted.

        Args:
            place: What is shown.
            route: What its keys stand for.
            grant: What was granted.
            asked_s: A moment before, by the monotonic clock.
        """
        self._granted.pop(place, None)
        if grant.ttl_us > 0:
            self._granted[place] = _Granted(route, asked_s, grant)
            if len(self._granted) > self._most:
                del self._granted[next(iter(self._granted))]

    def again(self, place: Location, route: ClassRoute, life_us: int, now_s: float) -> Grant | None:
        """Return what is left of a grant, if it is enough.

        Args:
            place: What is shown.
            route: What its keys stand for by now: of another layout nothing is left.
            life_us: The life that the sketch would be asked for (microseconds).
            now_s: The time, by the monotonic clock.
        """
        last = self._granted.get(place)
        if last is None or last.route is not route:
            return None
        # The sketch's clock shows no more than this: its answer came after it was asked.
        passed_us = math.ceil((now_s - last.asked_s) * 1_000_000)
        left_us = min(last.grant.ttl_us - passed_us, life_us)
        if left_us <= 0 or left_us < _ENOUGH * life_us:
            return None
        return Grant(last.grant.now_us + passed_us, left_us)
