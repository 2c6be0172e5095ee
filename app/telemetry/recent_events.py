"""The latest events, which the pages show; each process records its own."""

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

__all__ = ["RECORDED_EVENTS", "RecentEvents", "RecordedEvent"]

RECORDED_EVENTS: Final = frozenset(
    {
        CircuitChanged,
        PlacementDecided,
        ProposalRecorded,
        RedoRecovered,
        SystemRegistered,
        ViolationDetected,
    }
)
_MAX_EVENTS: Final = 50


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """An observation, and its time in seconds since 1970."""

    at_s: float
    observation: Observation


class RecentEvents:
    """The latest decisions, and other events for operators, newest first.

    `observe` runs on every request, so frequent events are dropped.
    """

    def __init__(self) -> None:
        self._events: deque[RecordedEvent] = deque(maxlen=_MAX_EVENTS)

    def observe(self, event: Observation) -> None:
        if event.__class__ not in RECORDED_EVENTS:
            return
        if isinstance(event, RedoRecovered):
            if event.outcome != "refused":
                return
            self._forget(event)  # it is retried each minute
        self._events.appendleft(RecordedEvent(time(), event))

    def _forget(self, event: Observation) -> None:
        for recorded in [entry for entry in self._events if entry.observation == event]:
            self._events.remove(recorded)

    @property
    def events(self) -> list[RecordedEvent]:
        return list(self._events)
