"""Processes with memory requirements and traffic between them, and machines to run them on.

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
        memory_mb: The memory that it needs, in MB.
        part: The part of the Helm chart whose pod it is; None: not a process of Portolan.
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
    """A machine; its price is due if it is used at all."""

    memory_mb: float
    price: float = 1.0


Allocation: TypeAlias = Mapping[str, str]
"""The machine of each process."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Processes, traffic and machines for an allocation.

    Attributes:
        overheads: Cost of a tuple by source and target machine, including within a machine.
    """

    processes: Mapping[str, Process]
    edges: tuple[Edge, ...]
    machines: Mapping[str, Machine]
    overheads: Mapping[tuple[str, str], float]

    def communication(self, allocation: Allocation) -> float:
        """Return the traffic weighted by overheads."""
        return sum(
            edge.tuples * self.overheads[allocation[edge.source], allocation[edge.target]]
            for edge in self.edges
        )

    def price(self, allocation: Allocation) -> float:
        """Return the price of the used machines."""
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
        return [name for name, host in allocation.items() if host == machine]
