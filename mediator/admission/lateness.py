"""Events of what is late: message flows and standing queries, of which more is late than before."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from mediator.admission.evaluation import Event, Subject
from mediator.flows.service import FlowState
from mediator.standing.service import StandingState

__all__ = ["LateEvents", "flow_subject", "query_subject"]


@dataclass(eq=False)
class LateEvents:
    """What was late of each subject of a kind at the last look.

    At the first one, a subject of which something is late is an event.

    Attributes:
        name: Of the events.
        kind: Of the subjects.
    """

    name: str
    kind: str
    _late: dict[str, int] = field(default_factory=dict, init=False)

    def forget(self) -> None:
        """Begin anew: another replica looked meanwhile."""
        self._late = {}

    def of(self, subjects: Iterable[tuple[Subject, int]], most: int) -> list[Event]:
        """Return at most so many events; the others are found at the next look.

        Args:
            subjects: Each with how much of it is late, or ever was.
            most: How many events.
        """
        events: list[Event] = []
        late: dict[str, int] = {}
        for subject, present in subjects:
            before = self._late.get(subject["id"])
            is_late = subject["late"] > 0 if before is None else present > before
            if is_late and len(events) == most:
                if before is not None:
                    late[subject["id"]] = before
                continue
            late[subject["id"]] = present
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
