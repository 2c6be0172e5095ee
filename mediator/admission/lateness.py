"""Events of lateness: message flows and standing queries with more late items than before."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from mediator.admission.evaluation import Event, Subject
from mediator.flows.service import FlowState
from mediator.standing.service import StandingState

__all__ = ["LateEvents", "flow_subject", "query_subject"]


@dataclass(eq=False)
class LateEvents:
    """The late items of each subject of a kind at the last check.

    At the first check, every subject with late items is an event.

    Attributes:
        name: The name of the events.
        kind: The kind of the subjects.
    """

    name: str
    kind: str
    _late: dict[str, int] = field(default_factory=dict, init=False)

    def forget(self) -> None:
        """Reset: another replica checked meanwhile."""
        self._late = {}

    def of(self, subjects: Iterable[tuple[Subject, int]], limit: int) -> list[Event]:
        """Return at most `limit` events; the next check finds further ones.

        Args:
            subjects: Each subject with the number of its items that are, or ever were, late.
            limit: How many events.
        """
        events: list[Event] = []
        late: dict[str, int] = {}
        for subject, count in subjects:
            before = self._late.get(subject["id"])
            is_late = subject["late"] > 0 if before is None else count > before
            if is_late and len(events) == limit:
                if before is not None:
                    late[subject["id"]] = before
                continue
            late[subject["id"]] = count
            if is_late:
                events.append(Event(self.name, {self.kind: subject}))
        self._late = late
        return events


def flow_subject(state: FlowState) -> Subject:
    """Return a flow as rules name it."""
    return {
        "id": state.id,
        "database": state.database,
        "name": state.name,
        "queued": state.load.queued,
        "late": state.load.late,
        "paused_s": state.load.paused_s,
    }


def query_subject(state: StandingState) -> Subject:
    """Return a standing query as rules name it."""
    load = state.load
    return {
        "id": state.id,
        "database": state.database,
        "name": state.query.document.get("name", ""),
        "lag": load.lag,
        "late": state.late,
        "paused_s": 0.0 if load.pause is None else load.pause.seconds,
    }
