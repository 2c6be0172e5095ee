"""Allocates: the solver's optimum, the greedy result at its time limit, or the reason for none."""

from __future__ import annotations

from dataclasses import dataclass

from mediator.allocation.greedy import greedy
from mediator.allocation.model import Allocation, Objective, Workload
from mediator.allocation.program import MAX_VARIABLES, allocation_of, solve, variables
from mediator.base.errors import Invalid, Location, PortolanError

__all__ = ["Allocated", "DoesNotFit", "allocate"]


class DoesNotFit(PortolanError):
    """No allocation exists, or none was found; the detail says why, with the sums."""


@dataclass(frozen=True, slots=True)
class Allocated:
    """An allocation with its value.

    Attributes:
        bound: Lower bound on the value of any allocation.
        is_greedy: Whether it is the greedy one: the solver found none as good within its time
            limit.
    """

    allocation: Allocation
    value: float
    bound: float
    is_greedy: bool
    solved_s: float

    @property
    def gap(self) -> float:
        """How much better the optimum may be, as a share of the value."""
        return (self.value - self.bound) / self.value if self.value > self.bound else 0.0


def allocate(workload: Workload, objective: Objective, limit_s: float) -> Allocated:
    """Find the allocation with the minimum value.

    Raises:
        DoesNotFit: No allocation exists, or none was found.
        Invalid: The program would be too large.
        SolverMissing: SciPy is not installed.
    """
    _check_memory(workload)
    if (count := variables(workload, objective)) > MAX_VARIABLES:
        detail = f"makes a program of {count:,} variables; {MAX_VARIABLES:,} are the limit"
        raise Invalid("The workload is too large.", locations=[Location("", detail)])
    solution = solve(workload, objective, limit_s)
    if solution.is_infeasible:
        raise DoesNotFit(
            f"No way to divide the processes fits: they need {_mb(_required_mb(workload))} of"
            f" {_mb(_available_mb(workload))}, but in pieces that do not fit the machines."
        )
    greedy_allocation = greedy(workload, objective)
    solved = None if solution.values is None else allocation_of(workload, solution.values)
    candidates = [candidate for candidate in (solved, greedy_allocation) if candidate is not None]
    if not candidates:
        raise DoesNotFit(f"No allocation was found within {limit_s:g} s; there may be one.")
    best = min(candidates, key=lambda candidate: workload.value(candidate, objective))
    value = workload.value(best, objective)
    return Allocated(best, value, solution.bound, best is not solved, solution.solved_s)


def _check_memory(workload: Workload) -> None:
    largest = max(machine.memory_mb for machine in workload.machines.values())
    for name, process in workload.processes.items():
        if process.memory_mb > largest:
            raise DoesNotFit(
                f"{name} needs {_mb(process.memory_mb)}, and the largest machine has"
                f" {_mb(largest)}."
            )
    if _required_mb(workload) > _available_mb(workload):
        raise DoesNotFit(
            f"All processes need {_mb(_required_mb(workload))}, and all machines together have"
            f" {_mb(_available_mb(workload))}."
        )


def _required_mb(workload: Workload) -> float:
    return workload.memory(workload.processes)


def _available_mb(workload: Workload) -> float:
    return sum(machine.memory_mb for machine in workload.machines.values())


def _mb(memory_mb: float) -> str:
    return f"{memory_mb:,.6g} MB"
