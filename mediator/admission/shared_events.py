"""Events of runs, message flows and standing queries, which all replicas share, by polling."""

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
    """The runs at the last check. At the first one, every waiting or active run is an event."""

    _states: dict[str, str] = field(default_factory=dict, init=False)

    def forget(self) -> None:
        """Reset: another replica checked meanwhile."""
        self._states = {}

    def missing(self, runs: Iterable[Subject]) -> list[str]:
        """Return the ids of known runs that are missing here: they may have ended."""
        present = {run["id"] for run in runs}
        return [id_ for id_ in self._states if id_ not in present]

    def of(self, runs: Iterable[Subject], ended: Iterable[Subject], limit: int) -> list[Event]:
        """Return at most `limit` events; the next check finds further changes.

        Args:
            runs: The runs that have not ended.
            ended: The missing runs that have ended.
            limit: How many events.
        """
        events: list[Event] = []
        for run in ended:
            if len(events) < limit and self._states.pop(run["id"], None) is not None:
                events.append(_event("RunEnded", run))
        for run in runs:
            before, state = self._states.get(run["id"]), run["state"]
            if state == before:
                continue
            name = _name(before, state)
            if name is not None and len(events) == limit:
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
    """The state at the last check. At the first one, all waiting, active or late items are new."""

    _runs: RunEvents = field(default_factory=RunEvents, init=False)
    _late: list[LateEvents] = field(default_factory=_late_events, init=False)

    def forget(self) -> None:
        """Reset: another replica checked meanwhile."""
        self._runs.forget()
        for late_events in self._late:
            late_events.forget()

    def missing(self, runs: Iterable[Subject]) -> list[str]:
        """Return the ids of known runs that are missing here: they may have ended."""
        return self._runs.missing(runs)

    @contextmanager
    def take(
        self,
        runs: Iterable[Subject],
        ended: Iterable[Subject],
        late: Mapping[str, Sequence[tuple[Subject, int]]],
        limit: int,
    ) -> Iterator[list[Event]]:
        """Yield events to a block that evaluates them; if it fails, the state is reset.

        Args:
            runs: The runs that have not ended.
            ended: The missing runs that have ended.
            late: By kind, each flow or query with its number of late items; an unknown kind is
                missing.
            limit: How many events; the next check finds further changes.
        """
        events = self._runs.of(runs, ended, limit)
        for late_events in self._late:
            if late_events.kind in late:
                events += late_events.of(late[late_events.kind], limit - len(events))
        try:
            yield events
        except BaseException:
            # They are recorded as seen, but were not evaluated, and may not recur.
            self.forget()
            raise
