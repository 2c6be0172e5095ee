"""Events of message flows: which of them have had late messages since the look before."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from mediator.admission.evaluation import Event, Subject
from mediator.flows.service import FlowState

__all__ = ["FlowEvents", "flow_subject"]


@dataclass(eq=False)
class FlowEvents:
    """How many messages of each flow had been late at the last look.

    At the first one, a flow with messages that were late lately is an event.
    """

    _late: dict[str, int] = field(default_factory=dict, init=False)

    def forget(self) -> None:
        """Begin anew: another replica looked meanwhile."""
        self._late = {}

    def of(self, flows: Iterable[tuple[Subject, int]], most: int) -> list[Event]:
        """Return at most so many events; the others are found at the next look.

        Args:
            flows: Each with how many of its messages were ever late.
            most: How many events.
        """
        events: list[Event] = []
        late: dict[str, int] = {}
        for flow, ever in flows:
            before = self._late.get(flow["id"])
            is_late = flow["late"] > 0 if before is None else ever > before
            if is_late and len(events) == most:
                if before is not None:
                    late[flow["id"]] = before
                continue
            late[flow["id"]] = ever
            if is_late:
                events.append(Event("FlowLate", {"flow": flow}))
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
