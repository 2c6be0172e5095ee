"""Allocates: the best by the solver, the greedy one at its time limit, or why there is none."""

from __future__ import annotations

from dataclasses import dataclass

from mediator.allocation.greedy import greedy
from mediator.allocation.model import Allocation, Objective, Workload
from mediator.allocation.program import MOST_VARIABLES, allocation_of, solve, variables
from mediator.base.errors import Invalid, Location, PortolanError

__all__ = ["Allocated", "DoesNotFit", "allocate"]


class DoesNotFit(PortolanError):
    """There is no allocation, or none was found; it says why, with the sums."""


@dataclass(frozen=True, slots=True)
class Allocated:
    """An allocation with its value.

    Attributes:
        bound: What no allocation costs less than.
        is_greedy: Whether it is not the solver's, which found none as good within its time limit.
    """

    allocation: Allocation
    value: float
    bound: float
    is_greedy: bool
    solved_s: float

    @property
    def gap(self) -> float:
        """How much better the best may be, as a share of the value."""
        return (self.value - self.bound) / self.value if self.value > self.bound else 0.0


def allocate(workload: Workload, objective: Objective, limit_s: float) -> Allocated:
    """Find the allocation with the least value.

    Raises:
        DoesNotFit: There is no allocation, or none was found.
        Invalid: The program would be too large.
        SolverMissing: SciPy is not installed.
    """
    _check_memory(workload)
    if (count := variables(workload, objective)) > MOST_VARIABLES:
        detail = f"makes a program of {count:,} variables, and {MOST_VARIABLES:,} are the most"
        raise Invalid("The workload is too large.", locations=[Location("", detail)])
    found = solve(workload, objective, limit_s)
    if found.is_infeasible:
        raise DoesNotFit(
            f"No way to divide the processes fits: they need {_mb(_needed(workload))} of"
            f" {_mb(_there(workload))}, but in pieces that do not fit the machines."
        )
    other = greedy(workload, objective)
    solved = None if found.values is None else allocation_of(workload, found.values)
    candidates = [each for each in (solved, other) if each is not None]
    if not candidates:
        raise DoesNotFit(f"No allocation was found within {limit_s:g} s; there may be one.")
    best = min(candidates, key=lambda each: workload.value(each, objective))
    value = workload.value(best, objective)
    return Allocated(best, value, found.bound, best is not solved, found.solved_s)


def _check_memory(workload: Workload) -> None:
    largest = max(machine.memory_mb for machine in workload.machines.values())
    for name, process in workload.processes.items():
        if process.memory_mb > largest:
            raise DoesNotFit(
                f"{name} needs {_mb(process.memory_mb)}, and the largest machine has"
                f" {_mb(largest)}."
            )
    if _needed(workload) > _there(workload):
        raise DoesNotFit(
            f"All processes need {_mb(_needed(workload))}, and all machines together have"
            f" {_mb(_there(workload))}."
        )


def _needed(workload: Workload) -> float:
    return workload.memory(workload.processes)


def _there(workload: Workload) -> float:
    return sum(machine.memory_mb for machine in workload.machines.values())


def _mb(memory_mb: float) -> str:
    return f"{memory_mb:,.6g} MB"
