"""Integer programs: minimise a linear cost of variables between 0 and 1, some of them integers.

HiGHS, as part of SciPy, solves them within a time limit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Final

from mediator.base.errors import PortolanError

__all__ = ["AT_MOST", "Minimum", "Rows", "SolverMissing", "minimise"]

AT_MOST: Final = -math.inf
"""The lower limit of a row with only an upper one."""

_GAP: Final = 1e-6
"""A solution this close to the bound counts as optimal."""

_INFEASIBLE: Final = 2
"""The status of `scipy.optimize.milp` if no solution meets the rows."""


class SolverMissing(PortolanError):
    """SciPy is not installed: it comes with the extra `standing`."""


@dataclass(slots=True)
class Rows:
    """Rows of a sparse matrix, each a weighted sum of variables with its limits."""

    rows: list[int] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)

    def add(
        self, positive: Sequence[int], negative: Sequence[int], lower: float, upper: float
    ) -> None:
        """Limit the sum of the positive variables, by number, minus that of the negative ones."""
        weights = [1.0] * len(positive) + [-1.0] * len(negative)
        self.add_weighted([*positive, *negative], weights, lower, upper)

    def add_weighted(
        self, variables: Sequence[int], weights: Sequence[float], lower: float, upper: float
    ) -> None:
        """Limit the sum of some variables, each times its weight."""
        self.columns += variables
        self.values += weights
        self.rows += [len(self.lower)] * len(variables)
        self.lower.append(lower)
        self.upper.append(upper)


@dataclass(frozen=True, slots=True)
class Minimum:
    """The result of the solver.

    Attributes:
        values: The values of the variables; None: no solution, or none within the time limit.
        bound: The lower bound of the cost of any solution.
        is_infeasible: Whether no solution meets the rows, as proven.
        solved_s: The time of solving.
    """

    values: Sequence[float] | None
    bound: float
    is_infeasible: bool
    solved_s: float


def minimise(costs: Sequence[float], rows: Rows, integer_count: int, limit_s: float) -> Minimum:
    """Find the variables with the minimum cost, which is never below zero.

    Args:
        costs: The cost of each variable per unit.
        integer_count: How many of the variables, the first ones, must be 0 or 1.
        limit_s: The time limit; the best solution until then is returned.

    Raises:
        SolverMissing: SciPy is not installed.
    """
    try:
        from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415 - an extra
        from scipy.sparse import csr_array  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise SolverMissing("The solver needs SciPy: install portolan[standing].") from error
    matrix = csr_array((rows.values, (rows.rows, rows.columns)), (len(rows.lower), len(costs)))
    started = perf_counter()
    solution: Any = milp(
        costs,
        integrality=[int(number < integer_count) for number in range(len(costs))],
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(matrix, rows.lower, rows.upper),
        options={"time_limit": limit_s, "mip_rel_gap": _GAP},
    )
    solved_s = perf_counter() - started
    bound = solution.mip_dual_bound
    lower_bound = max(0.0, float(bound)) if bound is not None and math.isfinite(bound) else 0.0
    return Minimum(solution.x, lower_bound, solution.status == _INFEASIBLE, solved_s)
