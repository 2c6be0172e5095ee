"""Processes with the memory they need, the traffic between them, and machines to run them on.

The model is that of IncQuery-D (docs/papers/incqueryd.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

__all__ = ["Allocation", "Edge", "Machine", "Objective", "Process", "Workload"]


class Objective(StrEnum):
    COMMUNICATION = "communication"
    COST = "cost"


@dataclass(frozen=True, slots=True)
class Process:
    """A process that runs as a whole on one machine.

    Attributes:
        memory_mb: What it needs, in MB.
        part: The part of the chart that it is a pod of; None: it is not of Portolan.
    """

    memory_mb: float
    part: str | None = None


@dataclass(frozen=True, slots=True)
class Edge:
    """Traffic from one process to another, in normalised tuples: tuples times their values."""

    source: str
    target: str
    tuples: float


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine; its price is what it costs to use it at all."""

    memory_mb: float
    price: float = 1.0


Allocation: TypeAlias = Mapping[str, str]
"""The machine of each process."""


@dataclass(frozen=True, slots=True)
class Workload:
    """What is to be allocated.

    Attributes:
        overheads: What a tuple costs from one machine to another, by both; the same machine costs
            something, too.
    """

    processes: Mapping[str, Process]
    edges: tuple[Edge, ...]
    machines: Mapping[str, Machine]
    overheads: Mapping[tuple[str, str], float]

    def communication(self, allocation: Allocation) -> float:
        """Return the weighted traffic."""
        return sum(
            edge.tuples * self.overheads[allocation[edge.source], allocation[edge.target]]
            for edge in self.edges
        )

    def price(self, allocation: Allocation) -> float:
        """Return the price of the machines that are used."""
        return sum(self.machines[name].price for name in {*allocation.values()})

    def value(self, allocation: Allocation, objective: Objective) -> float:
        return (
            self.communication(allocation)
            if objective is Objective.COMMUNICATION
            else self.price(allocation)
        )

    def memory(self, processes: Iterable[str]) -> float:
        return sum(self.processes[name].memory_mb for name in processes)

    def on(self, machine: str, allocation: Allocation) -> list[str]:
        """Return the processes on a machine."""
        return [name for name, its in allocation.items() if its == machine]
