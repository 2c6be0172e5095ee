"""Events of runs: what has changed between two looks at those that have not ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mediator.admission.evaluation import Event, Subject

__all__ = ["RunEvents"]


_ACTIVE: Final = "ACTIVE"


@dataclass(eq=False)
class RunEvents:
    """The runs at the last look. At the first one, what waits and what is active is an event."""

    _states: dict[str, str] = field(default_factory=dict, init=False)

    def forget(self) -> None:
        """Begin anew: another replica looked meanwhile."""
        self._states = {}

    def missing(self, runs: Iterable[Subject]) -> list[str]:
        """Return the ids of known runs that are not among these: they may have ended."""
        present = {run["id"] for run in runs}
        return [id_ for id_ in self._states if id_ not in present]

    def of(self, runs: Iterable[Subject], ended: Iterable[Subject], most: int) -> list[Event]:
        """Return at most so many events; further changes are found at the next look.

        Args:
            runs: Those that have not ended.
            ended: Those of the missing ones that have.
            most: How many events.
        """
        events: list[Event] = []
        for run in ended:
            if len(events) < most and self._states.pop(run["id"], None) is not None:
                events.append(_event("RunEnded", run))
        for run in runs:
            before, state = self._states.get(run["id"]), run["state"]
            if state == before:
                continue
            name = _name(before, state)
            if name is not None and len(events) == most:
                break
            self._states[run["id"]] = state
            if name is not None:
                events.append(_event(name, run))
        return events


def _name(before: str | None, state: str) -> str | None:
    if state == _ACTIVE:
        return "RunStarted"
    return "RunSubmitted" if before is None and state == "QUEUED" else None


def _event(name: str, run: Mapping[str, Any]) -> Event:
    return Event(name, {"run": run})
