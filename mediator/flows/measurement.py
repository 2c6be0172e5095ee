"""A worker's measurements of a flow: costs, rate and selectivity, with less weight for the past."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mediator.base.averages import Average, Midmean, Rate
from mediator.base.clock import Clock
from mediator.base.waiting_time import Costs, WaitingTime, waiting_time
from mediator.flows.parser import Flow
from mediator.flows.queue import Batch

__all__ = ["Measurement"]


@dataclass(eq=False)
class Measurement:
    """Measurements of a flow, and the waiting time computed from them."""

    _flow: Flow
    _clock: Clock
    _constant_s: Midmean = field(default_factory=Midmean)
    _linear_s: Midmean = field(default_factory=Midmean)
    _sent_s: Midmean = field(default_factory=Midmean)
    _partitions: Average = field(default_factory=Average)
    _rate: Rate = field(default_factory=Rate)
    waiting: WaitingTime | None = None

    @property
    def wait_s(self) -> float:
        """Seconds from one batch to the next; 0 while nothing is measured."""
        return 0.0 if self.waiting is None else self.waiting.wait_s

    def add_batch(self, batch: Batch) -> None:
        # A backlog after a pause does not tell how many partitions share the waiting time.
        if not batch.is_behind:
            self._partitions.add(batch.partitions)
        self._rate.counted(batch.arrived, self._clock.monotonic())

    def add_outbound(self, took_s: float, messages: int) -> None:
        """Add time of the outbound part, which an ordered flow executes message by message."""
        self._sent_s.add(took_s / messages)

    def add_execution(self, took_s: float, linear_s: float, messages: int) -> None:
        """Recompute the waiting time after a batch with this many messages.

        Args:
            took_s: From the request for a batch to the record of its end. The queue's time belongs
                to the batch as well, as the next batch is executed only afterwards.
            linear_s: The time of it spent on single messages.
        """
        self._constant_s.add(max(0.0, took_s - linear_s))
        self._linear_s.add(linear_s / messages)
        costs, rate, partitions = self._costs, self._rate.value, self._partitions.value
        if rate is None or partitions is None:
            return
        latency_s, objective = self._flow.latency_s, self._flow.objective
        computed = waiting_time(costs, rate, 1 / partitions, latency_s, objective)
        self.waiting = computed

    @property
    def _costs(self) -> Costs:
        linear_s = (self._linear_s.value or 0.0) + (self._sent_s.value or 0.0)
        return Costs(self._constant_s.value or 0.0, linear_s)

    def document(self) -> dict[str, Any]:
        """Return everything as JSON."""
        costs, partitions, waiting = self._costs, self._partitions.value, self.waiting
        numbers = {
            "constant_s": costs.constant_s,
            "linear_s": costs.linear_s,
            "rate": self._rate.value,
            "selectivity": None if partitions is None else 1 / partitions,
        }
        if waiting is None:
            return {**numbers, "wait_s": None}
        return {
            **numbers,
            "batch": waiting.batch,
            "wait_s": waiting.wait_s,
            "wait_least_s": waiting.lower_s,
            "wait_most_s": waiting.upper_s,
            "is_valid": waiting.is_valid,
            "explanation": waiting.explanation,
            "speedup": costs.speedup(max(1.0, waiting.batch)),
        }
