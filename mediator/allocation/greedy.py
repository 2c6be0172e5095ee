"""A good allocation without a solver: what is largest first, then moves of one while they help."""

from __future__ import annotations

from collections import defaultdict

from mediator.allocation.model import Allocation, Edge, Objective, Workload

__all__ = ["greedy"]

_MOST_ROUNDS = 50
"""Rounds of moves at most; each tries every process on every machine."""


def greedy(workload: Workload, objective: Objective) -> Allocation | None:
    """Return an allocation in which everything fits; None: none was found."""
    search = _Search(workload, objective)
    if not search.place_all():
        return None
    for _ in range(_MOST_ROUNDS):
        moved = [search.move(name) for name in workload.processes]
        if not any(moved):
            break
    return search.allocation


class _Search:
    def __init__(self, workload: Workload, objective: Objective) -> None:
        self.allocation: dict[str, str] = {}
        self._workload = workload
        self._objective = objective
        self._free = {name: machine.memory_mb for name, machine in workload.machines.items()}
        self._users = dict.fromkeys(workload.machines, 0)
        self._edges: defaultdict[str, list[Edge]] = defaultdict(list)
        for edge in workload.edges:
            self._edges[edge.source].append(edge)
            self._edges[edge.target].append(edge)

    def place_all(self) -> bool:
        """Put each process, the largest first, on the fullest machine that has room for it."""
        processes = self._workload.processes
        for name in sorted(processes, key=lambda each: -processes[each].memory_mb):
            fitting = self._fitting(name)
            if not fitting:
                return False
            self._put(name, min(fitting, key=self._free.__getitem__))
        return True

    def move(self, name: str) -> bool:
        """Move a process to the machine where it costs least; false if it is there."""
        present = self.allocation[name]
        self._take(name)
        best = min([present, *self._fitting(name)], key=lambda machine: self._cost(name, machine))
        self._put(name, best)
        return best != present

    def _cost(self, name: str, machine: str) -> float:
        """Return what a process costs on a machine, with all others where they are."""
        if self._objective is Objective.COST:
            return 0.0 if self._users[machine] else self._workload.machines[machine].price
        overheads, machine_of = self._workload.overheads, self.allocation
        return sum(
            edge.tuples
            * overheads[machine_of.get(edge.source, machine), machine_of.get(edge.target, machine)]
            for edge in self._edges[name]
        )

    def _fitting(self, name: str) -> list[str]:
        needed = self._workload.processes[name].memory_mb
        return [machine for machine, room in self._free.items() if room >= needed]

    def _put(self, name: str, machine: str) -> None:
        self.allocation[name] = machine
        self._free[machine] -= self._workload.processes[name].memory_mb
        self._users[machine] += 1

    def _take(self, name: str) -> None:
        machine = self.allocation.pop(name)
        self._free[machine] += self._workload.processes[name].memory_mb
        self._users[machine] -= 1
