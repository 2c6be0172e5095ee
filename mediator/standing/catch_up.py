"""A query that was paused executes what it has missed, from the log of batches.

The log has every tuple that was not late, in the order in which the other queries have met them. So
the query has the results that it would have had without the pause, in a runtime of its own until it
is where the others are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from mediator.base.slices import Slices
from mediator.standing.batch_run import BatchRun
from mediator.standing.planning import Plan
from mediator.standing.query import StandingQuery
from mediator.standing.results import LoggedTuple
from mediator.standing.runtime import Runtime

__all__ = ["CatchUp"]

_AT_ONCE: Final = 500


@dataclass(eq=False)
class CatchUp:
    """One query that catches up.

    Attributes:
        id: Its id.
        numbers: How far it has got: the number of the last tuple, by relation.
    """

    id: str
    numbers: dict[str, int]
    _query: StandingQuery
    _lateness_s: float
    _latest_s: float = field(default=float("-inf"), init=False)
    _runtime: Runtime = field(init=False)
    _missed: deque[LoggedTuple] = field(default_factory=deque, init=False)

    @property
    def has_ended(self) -> bool:
        return not self._missed

    async def open(
        self, logged: AsyncIterator[Sequence[LoggedTuple]], plan: Plan, slices: Slices
    ) -> None:
        """Read the log, and have the state that the query had when it was paused.

        Args:
            logged: The tuples of each batch that is kept.
            plan: Of this query alone.
        """
        taken: list[LoggedTuple] = []
        missed: list[LoggedTuple] = []
        async for tuples in logged:
            # By numbers, and not by batches: history that another query needs is logged late.
            for each in tuples:
                if each.stream in self.numbers:
                    (missed if self._misses(each) else taken).append(each)
            await slices.checkpoint()
        self._latest_s = taken_s = max((each.time_s for each in taken), default=float("-inf"))
        self.add(missed)
        window_s, reach_s = self._query.join.window_s, taken_s - self._lateness_s
        reached = [each for each in taken if reach_s - each.time_s <= window_s]
        self._runtime = Runtime(self._query.join.relations, 1, window_s, self._lateness_s)
        for _ in self._runtime.restore(reached, taken_s):
            await slices.checkpoint()
        self._runtime.activate(plan)

    def add(self, tuples: Iterable[LoggedTuple]) -> None:
        """Take what the others have executed meanwhile, none of which is late here.

        It was let in when the watermark of all streams was lower: by batches that end elsewhere, or
        by a more patient query that is gone.
        """
        for each in tuples:
            if each.stream in self.numbers and self._misses(each):
                self._lateness_s = max(self._lateness_s, self._latest_s - each.time_s)
                self._latest_s = max(self._latest_s, each.time_s)
                self._missed.append(each)

    async def run(self, slices: Slices) -> BatchRun:
        """Execute the next tuples; raises `MustStop`."""
        self._runtime.lateness_s = self._lateness_s
        run = BatchRun(self._runtime, {self.id: self._query})
        for _ in run.run(islice(self._missed, _AT_ONCE)):
            await slices.checkpoint()
        # A log may have history in it that is out of order.
        self.numbers |= {name: max(self.numbers[name], last) for name, last in run.taken.items()}
        while self._missed and not self._misses(self._missed[0]):
            self._missed.popleft()
        return run

    def _misses(self, each: LoggedTuple) -> bool:
        return each.number > self.numbers[each.stream]
