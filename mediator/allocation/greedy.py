"""A good allocation without a solver: largest process first, then single moves while they help."""

from __future__ import annotations

from collections import defaultdict

from mediator.allocation.model import Allocation, Edge, Objective, Workload

__all__ = ["greedy"]

_MAX_ROUNDS = 50
"""Maximum rounds of moves; each tries every process on every machine."""


def greedy(workload: Workload, objective: Objective) -> Allocation | None:
    """Return an allocation in which all processes fit; None: none was found."""
    search = _Search(workload, objective)
    if not search.place_all():
        return None
    for _ in range(_MAX_ROUNDS):
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
        """Put each process, largest first, on the fullest machine with enough room."""
        processes = self._workload.processes
        for name in sorted(processes, key=lambda process: -processes[process].memory_mb):
            fitting = self._fitting(name)
            if not fitting:
                return False
            self._put(name, min(fitting, key=self._free.__getitem__))
        return True

    def move(self, name: str) -> bool:
        """Move a process to the machine where it costs least; false if it is already there."""
        current = self.allocation[name]
        self._take(name)
        best = min([current, *self._fitting(name)], key=lambda machine: self._cost(name, machine))
        self._put(name, best)
        return best != current

    def _cost(self, name: str, machine: str) -> float:
        """Return the cost of a process on a machine, with all others in place."""
        if self._objective is Objective.COST:
            return 0.0 if self._users[machine] else self._workload.machines[machine].price
        overheads, machine_of = self._workload.overheads, self.allocation
        return sum(
            edge.tuples
            * overheads[machine_of.get(edge.source, machine), machine_of.get(edge.target, machine)]
            for edge in self._edges[name]
        )

    def _fitting(self, name: str) -> list[str]:
        required_mb = self._workload.processes[name].memory_mb
        return [machine for machine, room in self._free.items() if room >= required_mb]

    def _put(self, name: str, machine: str) -> None:
        self.allocation[name] = machine
        self._free[machine] -= self._workload.processes[name].memory_mb
        self._users[machine] += 1

    def _take(self, name: str) -> None:
        machine = self.allocation.pop(name)
        self._free[machine] += self._workload.processes[name].memory_mb
        self._users[machine] -= 1
