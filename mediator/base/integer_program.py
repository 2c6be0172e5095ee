"""Integer programs: minimise a linear cost of variables between 0 and 1, some of them whole.

They are solved by HiGHS, as SciPy contains it, within a time limit.
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
"""The lower limit of a row that has an upper one only."""

_GAP: Final = 1e-6
"""A choice this close to the bound is taken for the best."""

_INFEASIBLE: Final = 2
"""What `scipy.optimize.milp` says if no choice meets the rows."""


class SolverMissing(PortolanError):
    """SciPy is not there: it comes with the extra `standing`."""


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
        """Limit the sum of some variables, by their numbers, less that of others."""
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
    """What the solver found.

    Attributes:
        values: Of the variables; None: no choice within the time limit, or there is none.
        bound: What no choice costs less than.
        is_infeasible: Whether it is proven that no choice meets the rows.
        solved_s: The time that it took.
    """

    values: Sequence[float] | None
    bound: float
    is_infeasible: bool
    solved_s: float


def minimise(costs: Sequence[float], rows: Rows, whole: int, limit_s: float) -> Minimum:
    """Find the variables with the least cost, which is never below zero.

    Args:
        costs: Of each variable, for each unit of it.
        whole: How many of the variables, the first ones, have to be 0 or 1.
        limit_s: When it ends with the best choice found until then.

    Raises:
        SolverMissing: SciPy is not installed.
    """
    try:
        from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415 - an extra
        from scipy.sparse import csr_array  # noqa: PLC0415 - the same
    except ModuleNotFoundError as error:
        raise SolverMissing("The solver needs SciPy: install portolan[standing].") from error
    matrix = csr_array((rows.values, (rows.rows, rows.columns)), (len(rows.lower), len(costs)))
    started = perf_counter()
    found: Any = milp(
        costs,
        integrality=[int(number < whole) for number in range(len(costs))],
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(matrix, rows.lower, rows.upper),
        options={"time_limit": limit_s, "mip_rel_gap": _GAP},
    )
    solved_s = perf_counter() - started
    bound = found.mip_dual_bound
    least = max(0.0, float(bound)) if bound is not None and math.isfinite(bound) else 0.0
    return Minimum(found.x, least, found.status == _INFEASIBLE, solved_s)
