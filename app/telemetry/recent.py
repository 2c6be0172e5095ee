"""What happened last, for those who look at the pages; kept by each process for itself."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from time import time
from typing import Final

from mediator.base.observation import (
    CircuitChanged,
    Observation,
    PlacementDecided,
    ProposalRecorded,
    SystemRegistered,
    ViolationDetected,
)

__all__ = ["KEPT", "Event", "Recent"]

KEPT: Final = frozenset(
    {CircuitChanged, PlacementDecided, ProposalRecorded, SystemRegistered, ViolationDetected}
)
_MOST: Final = 50


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, and when, in seconds since 1970."""

    at_s: float
    told: Observation


class Recent:
    """The latest decisions, and what else operators look for, newest first.

    `observe` is on the path of every request: what is frequent is not kept.
    """

    def __init__(self) -> None:
        self._events: deque[Event] = deque(maxlen=_MOST)

    def observe(self, told: Observation) -> None:
        """Keep it if it is of a kind that is kept."""
        if told.__class__ in KEPT:
            self._events.appendleft(Event(time(), told))

    @property
    def events(self) -> list[Event]:
        """The events, newest first."""
        return list(self._events)
