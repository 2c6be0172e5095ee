"""The latest events, which the pages show; each process keeps its own."""

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
    RedoRecovered,
    SystemRegistered,
    ViolationDetected,
)

__all__ = ["KEPT", "RecentEvents", "RecordedEvent"]

KEPT: Final = frozenset(
    {
        CircuitChanged,
        PlacementDecided,
        ProposalRecorded,
        RedoRecovered,
        SystemRegistered,
        ViolationDetected,
    }
)
_MOST: Final = 50


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """An observation, and its time in seconds since 1970."""

    at_s: float
    observation: Observation


class RecentEvents:
    """The latest decisions, and what else operators look for, newest first.

    `observe` is on the path of every request: what is frequent is not kept.
    """

    def __init__(self) -> None:
        self._events: deque[RecordedEvent] = deque(maxlen=_MOST)

    def observe(self, event: Observation) -> None:
        if event.__class__ not in KEPT:
            return
        if isinstance(event, RedoRecovered):
            if event.outcome != "refused":
                return
            self._forget(event)  # it is tried again each minute
        self._events.appendleft(RecordedEvent(time(), event))

    def _forget(self, event: Observation) -> None:
        for recorded in [each for each in self._events if each.observation == event]:
            self._events.remove(recorded)

    @property
    def events(self) -> list[RecordedEvent]:
        return list(self._events)
