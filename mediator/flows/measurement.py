"""What a worker measures of a flow: costs, rate and selectivity, with less weight for the past."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from mediator.base.clock import Clock
from mediator.flows.parser import Flow
from mediator.flows.queue import Batch
from mediator.flows.waiting_time import Costs, WaitingTime, waiting_time

__all__ = ["Measurement"]

_WEIGHT: Final = 0.2
"""Of the newest value in an average: about the last ten values count."""

_RATE_OVER_S: Final = 0.5
"""Messages are counted for so long at least before a rate is made of them."""


@dataclass(eq=False, slots=True)
class _Average:
    value: float | None = None

    def add(self, value: float) -> None:
        self.value = value if self.value is None else self.value + _WEIGHT * (value - self.value)


@dataclass(eq=False)
class Measurement:
    """The measured numbers of a flow, and the waiting time that follows from them."""

    _flow: Flow
    _clock: Clock
    _constant_s: _Average = field(default_factory=_Average)
    _linear_s: _Average = field(default_factory=_Average)
    _sent_s: _Average = field(default_factory=_Average)
    _partitions: _Average = field(default_factory=_Average)
    _rate: _Average = field(default_factory=_Average)
    _counted: tuple[float, int] | None = None
    waiting: WaitingTime | None = None

    @property
    def wait_s(self) -> float:
        """Seconds from one batch to the next; none, while nothing is measured."""
        return 0.0 if self.waiting is None else self.waiting.wait_s

    def taken(self, batch: Batch) -> None:
        self._partitions.add(batch.partitions)
        now = self._clock.monotonic()
        if self._counted is None:
            self._counted = now, batch.arrived
            return
        since, before = self._counted
        if now - since >= _RATE_OVER_S:
            self._rate.add((batch.arrived - before) / (now - since))
            self._counted = now, batch.arrived

    def sent(self, took_s: float, messages: int) -> None:
        """Add what is executed for each message only when its turn has come."""
        self._sent_s.add(took_s / messages)

    def executed(self, took_s: float, linear_s: float, messages: int) -> None:
        """Compute the waiting time anew after a batch with so many messages.

        Args:
            took_s: From the request for a batch to the record of its end. What the queue takes of
                it belongs to the batch, too: the next one is executed only afterwards.
            linear_s: What of it was spent on each message by itself.
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
            "wait_least_s": waiting.least_s,
            "wait_most_s": waiting.most_s,
            "is_valid": waiting.is_valid,
            "explanation": waiting.explanation,
            "speedup": costs.speedup(max(1.0, waiting.batch)),
        }
