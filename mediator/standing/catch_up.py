"""Catch-up of a paused query, which executes the tuples it missed from the log of batches.

The log has every tuple that was not late, in the order in which the other queries executed them.
The query therefore gets the same results as without the pause, in a separate runtime until it has
caught up with the others.
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

_BATCH_TUPLES: Final = 500


@dataclass(eq=False)
class CatchUp:
    """One query that catches up.

    Attributes:
        id: Its id.
        numbers: Its progress: the number of the last tuple, by relation.
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
        """Read the log, and restore the state that the query had when it was paused.

        Args:
            logged: The tuples of each kept batch.
            plan: The plan of this query alone.
        """
        executed: list[LoggedTuple] = []
        missed: list[LoggedTuple] = []
        async for tuples in logged:
            # By numbers, not by batches: history that another query needs is logged late.
            for item in tuples:
                if item.stream in self.numbers:
                    (missed if self._misses(item) else executed).append(item)
            await slices.checkpoint()
        self._latest_s = executed_s = max((item.time_s for item in executed), default=float("-inf"))
        self.add(missed)
        window_s, reach_s = self._query.join.window_s, executed_s - self._lateness_s
        reachable = [item for item in executed if reach_s - item.time_s <= window_s]
        self._runtime = Runtime(self._query.join.relations, 1, window_s, self._lateness_s)
        for _ in self._runtime.restore(reachable, executed_s):
            await slices.checkpoint()
        self._runtime.activate(plan)

    def add(self, tuples: Iterable[LoggedTuple]) -> None:
        """Add tuples that the other queries have executed meanwhile; none is late here.

        They were accepted at a lower watermark: in batches with other ends, or for a query with
        more lateness that is gone.
        """
        for item in tuples:
            if item.stream in self.numbers and self._misses(item):
                self._lateness_s = max(self._lateness_s, self._latest_s - item.time_s)
                self._latest_s = max(self._latest_s, item.time_s)
                self._missed.append(item)

    async def run(self, slices: Slices) -> BatchRun:
        """Execute the next tuples; raises `MustStop`."""
        self._runtime.lateness_s = self._lateness_s
        run = BatchRun(self._runtime, {self.id: self._query})
        for _ in run.run(islice(self._missed, _BATCH_TUPLES)):
            await slices.checkpoint()
        # The log may have history that is out of order.
        self.numbers |= {
            name: max(self.numbers[name], last) for name, last in run.last_numbers.items()
        }
        while self._missed and not self._misses(self._missed[0]):
            self._missed.popleft()
        return run

    def _misses(self, item: LoggedTuple) -> bool:
        return item.number > self.numbers[item.stream]
