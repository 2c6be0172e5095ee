"""The allocation as an integer program.

`x[p, m]` is 1 if process p is on machine m. For the traffic of an edge, `y[e, m, n]` is its share
from m to n: the shares of a source add up to its x, and likewise for a target. Fractions of
processes thus pay for their traffic; the paper's rows, ``w >= e (x + x - 1)``, let halves send for
free. For the price, `u[m]` is 1 if any process is on m.
"""

from __future__ import annotations

from itertools import product
from typing import Any

from mediator.allocation.model import Allocation, Objective, Workload
from mediator.base.integer_program import AT_MOST, Minimum, Rows, minimise

__all__ = ["MAX_VARIABLES", "allocation_of", "solve", "variables"]

MAX_VARIABLES = 200_000


class _Program:
    def __init__(self, workload: Workload, objective: Objective) -> None:
        self._workload = workload
        self._assignments = {
            assignment: number
            for number, assignment in enumerate(product(workload.processes, workload.machines))
        }
        self.costs = [0.0] * len(self._assignments)
        self.rows = Rows()
        self._place_each()
        self._fit()
        if objective is Objective.COMMUNICATION:
            self._pay_for_traffic()
        else:
            self._pay_for_machines()
        self.integers = len(self._assignments)

    def _place_each(self) -> None:
        for process in self._workload.processes:
            assignments = [
                self._assignments[process, machine] for machine in self._workload.machines
            ]
            self.rows.add(assignments, [], 1, 1)

    def _fit(self) -> None:
        processes = self._workload.processes
        memory = [process.memory_mb for process in processes.values()]
        for name, machine in self._workload.machines.items():
            assignments = [self._assignments[process, name] for process in processes]
            self.rows.add_weighted(assignments, memory, AT_MOST, machine.memory_mb)

    def _pay_for_traffic(self) -> None:
        machines, overheads = self._workload.machines, self._workload.overheads
        for edge in self._workload.edges:
            shares = {link: self._variable(edge.tuples * cost) for link, cost in overheads.items()}
            for machine in machines:
                sent = [shares[machine, other] for other in machines]
                received = [shares[other, machine] for other in machines]
                self.rows.add(sent, [self._assignments[edge.source, machine]], 0, 0)
                self.rows.add(received, [self._assignments[edge.target, machine]], 0, 0)

    def _pay_for_machines(self) -> None:
        for name, machine in self._workload.machines.items():
            used = self._variable(machine.price)
            for process in self._workload.processes:
                self.rows.add([self._assignments[process, name]], [used], AT_MOST, 0)

    def _variable(self, cost: float) -> int:
        self.costs.append(cost)
        return len(self.costs) - 1


def variables(workload: Workload, objective: Objective) -> int:
    """Return how many variables the program of a workload has."""
    machines = len(workload.machines)
    assignments = len(workload.processes) * machines
    if objective is Objective.COST:
        return assignments + machines
    return assignments + len(workload.edges) * machines**2


def solve(workload: Workload, objective: Objective, limit_s: float) -> Minimum:
    """Solve the program; raises `SolverMissing`."""
    program = _Program(workload, objective)
    return minimise(program.costs, program.rows, program.integers, limit_s)


def allocation_of(workload: Workload, values: Any) -> Allocation:
    """Return the allocation of a solution's variables."""
    half = 0.5
    assignments = product(workload.processes, workload.machines)
    # The variables of assignments come first.
    return dict(assignment for assignment, x in zip(assignments, values, strict=False) if x > half)
