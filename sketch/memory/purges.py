"""Purges that are owed."""

from __future__ import annotations

from sketch.memory.deadlines import Deadlines
from sketch.protocol.port import SketchLimits
from sketch.protocol.times import again_step_us, microseconds

__all__ = ["OwedPurges"]


class OwedPurges:
    """For each key the times at or after which it must be purged.

    A purge that begins later settles all times before it. The repeated ones are put off to a few
    instants, so that a key that is written all the time owes but a few.
    """

    def __init__(self, limits: SketchLimits) -> None:
        again_s = limits.purge_again_s
        self._again_us = None if again_s is None else microseconds(again_s)
        self._step_us = again_step_us(limits)
        self._lease_us = microseconds(limits.purge_lease_s)
        self._owed: dict[str, set[int]] = {}
        self._next = Deadlines()

    def __len__(self) -> int:
        return len(self._owed)

    def due(self, now: int) -> int:
        """Return how many keys are due and not given out."""
        return self._next.due(now)

    def first(self) -> int | None:
        """Return when the first key is given out next; None: there is none."""
        return self._next.first()

    def owe(self, now: int, key: str) -> None:
        """Owe a purge now, and one after the longest fill; unless nothing is purged."""
        if self._again_us is None:
            return
        due = now + 1  # a purge that was given out at this instant does not settle it
        again = -(-(due + self._again_us) // self._step_us) * self._step_us
        later = {time for time in self._owed.get(key, ()) if time > due}
        self._owed[key] = later | {due, again}
        self._next.put(key, due)

    def take(self, now: int, limit: int) -> list[str]:
        """Give out keys that are due; their ticket is the time."""
        keys = self._next.take(now, limit)
        for key in keys:
            self._next.put(key, now + self._lease_us)
        return keys

    def acknowledge(self, key: str, ticket: int) -> None:
        """Strike off what a purge that was given out at a time has settled."""
        left = {time for time in self._owed.pop(key, ()) if time > ticket}
        self._next.discard(key)
        if left:
            self._owed[key] = left
            self._next.put(key, min(left))
