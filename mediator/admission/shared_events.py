"""Events of what all replicas share, runs, message flows and standing queries, found by looks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from mediator.admission.evaluation import Event, Subject
from mediator.admission.lateness import LateEvents

__all__ = ["RunEvents", "SharedEvents"]


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


def _late_events() -> list[LateEvents]:
    return [LateEvents("FlowLate", "flow"), LateEvents("QueryLate", "query")]


@dataclass(eq=False)
class SharedEvents:
    """What the last look has seen. At the first one, all that waits, is active or late is new."""

    _runs: RunEvents = field(default_factory=RunEvents, init=False)
    _late: list[LateEvents] = field(default_factory=_late_events, init=False)

    def forget(self) -> None:
        """Begin anew: another replica looked meanwhile."""
        self._runs.forget()
        for each in self._late:
            each.forget()

    def missing(self, runs: Iterable[Subject]) -> list[str]:
        """Return the ids of known runs that are not among these: they may have ended."""
        return self._runs.missing(runs)

    @contextmanager
    def taken(
        self,
        runs: Iterable[Subject],
        ended: Iterable[Subject],
        late: Mapping[str, Sequence[tuple[Subject, int]]],
        most: int,
    ) -> Iterator[list[Event]]:
        """Yield events, for a block that evaluates them; if it fails, the next look begins anew.

        Args:
            runs: Those that have not ended.
            ended: Those of the missing ones that have.
            late: By kind, each flow and query with how much of it is late; a kind that is not known
                now is missing.
            most: How many events; further changes are found at the next look.
        """
        events = self._runs.of(runs, ended, most)
        for each in self._late:
            if each.kind in late:
                events += each.of(late[each.kind], most - len(events))
        try:
            yield events
        except BaseException:
            # They are noted as seen, and were not evaluated: the flow is late once, say.
            self.forget()
            raise
