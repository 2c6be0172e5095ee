"""A bounded sample of the keys of a class, biased to those that are asked for often and lately."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final

from sketch.ttl.history import KeyHistory

__all__ = ["Reservoir"]

_ADMITTED: Final = 0.25
"""Share of the arrivals of unknown keys that enter a full sample: what is asked for once seldom
does, what is asked for often soon is in, and histories live four times as long."""


class Reservoir:
    """Remembers at most so many keys; the newcomer takes the place of any other.

    That is Aggarwal's reservoir for streams that change (VLDB 2006, algorithm 3.1): the chance
    that an old arrival is still remembered falls exponentially with what came since.

    Args:
        capacity: The most keys.
        random: Decides who enters, and who leaves.
    """

    def __init__(self, capacity: int, random: Random) -> None:
        if capacity < 1:
            raise ValueError("at least one key is remembered")
        self._capacity = capacity
        self._random = random
        self._histories: dict[str, KeyHistory] = {}
        self._names: list[str] = []
        self.get = self._histories.get

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[tuple[str, KeyHistory]]:
        return iter(self._histories.items())

    @property
    def full(self) -> bool:
        """Whether keys are forgotten."""
        return len(self._names) == self._capacity

    def admit(self, key: str, now_s: float) -> KeyHistory | None:
        """Let an unknown key in; None: it stays unknown."""
        if len(self._names) < self._capacity:
            self._names.append(key)
        elif self._random.random() < _ADMITTED:
            slot = int(self._random.random() * self._capacity)
            del self._histories[self._names[slot]]
            self._names[slot] = key
        else:
            return None
        history = self._histories[key] = KeyHistory(now_s)
        return history
