"""The waiting time of a flow: how long messages are collected before the next batch is executed.

A batch of k' messages takes a + b * k' seconds; with a rate R and a waiting time T it has R * T
messages. Any T between two bounds is valid: below the lower one execution takes longer than the
wait, above the upper one the oldest message may be late. Both are formulas (see
`docs/papers/mpo.md`), without a search.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Costs", "WaitingTime", "waiting_time"]


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of a batch: constant seconds, plus seconds for each message in it."""

    constant_s: float
    linear_s: float

    def of_batch(self, messages: float) -> float:
        return self.constant_s + self.linear_s * messages

    def speedup(self, messages: float) -> float:
        """Return the throughput of batches relative to single messages."""
        batch_s = self.of_batch(messages)
        return messages * self.of_batch(1) / batch_s if batch_s else 1.0


@dataclass(frozen=True, slots=True)
class WaitingTime:
    """A waiting time with its inputs; all times in seconds.

    Attributes:
        wait_s: The time between two batches.
        lower_s: The lower bound; None: the flow is overloaded.
        upper_s: The upper bound, from the latency bound.
        batch: Messages of a batch.
        is_valid: Whether the latency bound can hold.
        explanation: The reason, in a sentence with the numbers.
    """

    wait_s: float
    lower_s: float | None
    upper_s: float
    batch: float
    is_valid: bool
    explanation: str


def waiting_time(
    costs: Costs,
    rate: float,
    selectivity: float,
    latency_s: float,
    objective: Literal["latency", "work"],
) -> WaitingTime:
    """Compute the waiting time.

    Args:
        costs: The costs of a batch.
        rate: Messages that arrive per second.
        selectivity: The share of messages of one partition: 1 over the number of partitions.
        latency_s: The latency bound.
        objective: `latency`: the lower bound; `work`: the upper one.
    """
    a, b = costs.constant_s, costs.linear_s
    # The last of 1/sel partitions waits for all before it (appendix A.2 of the paper).
    upper_s = (latency_s - a) / (1 / selectivity + b * rate)
    load = rate * b
    if load >= 1:
        return _overloaded(costs, load, rate, selectivity, latency_s)
    lower_s = a / (1 - load)
    if lower_s > upper_s:
        worst_s = lower_s / selectivity + costs.of_batch(rate * lower_s)
        text = (
            f"The bound of {latency_s:.6g} s cannot hold: batches that keep up with"
            f" {rate:.6g} messages a second take {lower_s:.6g} s each, and with"
            f" {1 / selectivity:.6g} partitions the last message of them takes {worst_s:.6g} s."
        )
        return WaitingTime(lower_s, lower_s, upper_s, rate * lower_s, False, text)
    wait_s = lower_s if objective == "latency" else upper_s
    text = (
        f"Any wait from {lower_s:.6g} s, the time that a batch then takes, to {upper_s:.6g} s, with"
        f" which the last of {1 / selectivity:.6g} partitions still ends within {latency_s:.6g} s,"
        f" is valid; for the objective {objective} it is {wait_s:.6g} s."
    )
    return WaitingTime(wait_s, lower_s, upper_s, rate * wait_s, True, text)


def _overloaded(
    costs: Costs, load: float, rate: float, selectivity: float, latency_s: float
) -> WaitingTime:
    """Run batches back to back, as large as the bound allows: they cannot keep up."""
    max_batch_s = latency_s / (1 / selectivity + 1)
    batch = max(1.0, (max_batch_s - costs.constant_s) / costs.linear_s)
    text = (
        f"Overload: {rate:.6g} messages a second take {load:.6g} s of work in each second, whatever"
        f" the batches. They run back to back, with {batch:.6g} messages at most."
    )
    return WaitingTime(0.0, None, max_batch_s, batch, False, text)
