"""Events of what all replicas share, runs, message flows and standing queries, found by looks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from mediator.admission.evaluation import Event, Subject
from mediator.admission.lateness import LateEvents
from mediator.admission.runs import RunEvents

__all__ = ["SharedEvents"]


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
