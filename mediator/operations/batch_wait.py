"""The interval between batches of single calls, computed from measured costs and arrivals.

Batches of a fragment follow one another, so the shortest wait with which they keep up is the lower
bound of `mediator.base.waiting_time`: while one batch is executed, the next one is collected. A
longer wait would save some work and cost every caller latency. A call that arrives when the latest
batch started longer ago than that does not wait.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

from mediator.base.averages import MeasuredCosts, Rate
from mediator.base.waiting_time import Costs, waiting_time
from mediator.schema.batching import WaitBound

__all__ = ["MAX_CALLS", "BatchWait"]

MAX_CALLS: Final = 100
"""Calls of one batch at most: a store does them in one transaction or script."""

_MAX_BATCH_S: Final = 0.25
"""Limit of the expected seconds of a batch, unless a goal is lower: objects may be large."""


@dataclass(eq=False, slots=True)
class BatchWait:
    """The current wait and its inputs; all times in seconds.

    Attributes:
        pipelines: Whether the store lets concurrent calls share round trips; then no call waits.
        wait_s: The minimum time from the start of one batch to the start of the next.
        max_calls: Calls that the next batch may have.
        why: A sentence with the numbers that explains the wait.
    """

    bound: WaitBound
    pipelines: bool = False
    wait_s: float = 0.0
    max_calls: int = MAX_CALLS
    why: str = "Nothing is measured yet."
    _costs: MeasuredCosts = field(default_factory=MeasuredCosts)
    _rate: Rate = field(default_factory=Rate)
    _arrived: int = 0

    def executed(self, calls: int, arrived: int, seconds: float, now_s: float) -> None:
        """Recompute the wait after a batch.

        Args:
            calls: Calls that the store got.
            arrived: Operations that they answer.
            seconds: The duration of the batch.
            now_s: The monotonic time.
        """
        self._arrived += arrived
        self._rate.counted(self._arrived, now_s)
        self._costs.add(calls, seconds)
        costs, rate = self._costs.costs, self._rate.value
        self.max_calls = self._max_calls(costs)
        if rate is not None:
            self.wait_s, self.why = self._compute(costs, rate)

    def _max_calls(self, costs: Costs) -> int:
        """Return how many calls a batch can have and still meet the goal."""
        max_batch_s = min(self.bound.goal_s, _MAX_BATCH_S)
        if not costs.linear_s:
            return MAX_CALLS
        return max(1, min(MAX_CALLS, int((max_batch_s - costs.constant_s) / costs.linear_s)))

    def _compute(self, costs: Costs, rate: float) -> tuple[float, str]:
        if self.pipelines:
            return 0.0, (
                "The system lets concurrent calls share round trips, so nothing waits: those of one"
                " tick of the event loop go together."
            )
        a, b = costs.constant_s, costs.linear_s
        measured = (
            f"A batch takes {a:.4g} s and {b:.4g} s for each call, and {rate:.4g} operations arrive"
            " in a second"
        )
        waiting = waiting_time(costs, rate, 1.0, self.bound.goal_s, "latency")
        if waiting.lower_s is None:
            return 0.0, f"{measured}: more than batches can take, so they run back to back."
        if not waiting.is_valid:
            return 0.0, (
                f"{measured}: after a wait of {waiting.lower_s:.4g} s the goal of"
                f" {self.bound.goal_s:.4g} s could not hold, so nothing waits."
            )
        wait_s = min(waiting.lower_s, self.bound.max_wait_s)
        if rate * wait_s < 1:
            return 0.0, (
                f"{measured}: within {wait_s:.4g} s less than one more is expected, so nothing"
                " waits."
            )
        keeps_up = f"batches keep up if they begin {waiting.lower_s:.4g} s after one another"
        if wait_s < waiting.lower_s:
            keeps_up += f", and max_wait_s is {wait_s:.4g} s"
        return wait_s, f"{measured}: {keeps_up}."

    def document(self) -> dict[str, Any]:
        """Return everything as JSON."""
        costs = self._costs.costs
        return {
            "wait_s": self.wait_s,
            "max_wait_s": self.bound.max_wait_s,
            "goal_s": None if self.bound.goal_s == inf else self.bound.goal_s,
            "constant_s": costs.constant_s,
            "linear_s": costs.linear_s,
            "rate": self._rate.value,
            "why": self.why,
        }
