"""The memory of a process by the normalised tuples it holds: a line through measured runs.

Too little memory ends a process, so the estimate is as far above the line as any run was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["LEAST_RUNS", "MemoryEstimate", "fitted"]

LEAST_RUNS = 3


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """``constant_mb + mb_per_tuple * tuples + margin_mb``.

    Attributes:
        margin_mb: How far the run that needed most was above the line.
        r_squared: The share of the variance of runs that the line explains.
    """

    constant_mb: float
    mb_per_tuple: float
    margin_mb: float
    r_squared: float

    def of(self, tuples: float) -> float:
        return self.constant_mb + self.mb_per_tuple * tuples + self.margin_mb


def fitted(runs: Sequence[tuple[float, float]]) -> MemoryEstimate:
    """Fit a line to runs, each of normalised tuples and MB.

    Raises:
        ValueError: There are fewer than `LEAST_RUNS`, or all have as many tuples.
    """
    tuples, memory = np.array(runs, np.float64).reshape(-1, 2).T
    if len(runs) < LEAST_RUNS or np.ptp(tuples) == 0:
        raise ValueError(f"must have {LEAST_RUNS} runs with different numbers of tuples")
    slope, constant = np.polyfit(tuples, memory, 1)
    residuals = memory - (constant + slope * tuples)
    variance = float(((memory - memory.mean()) ** 2).sum())
    explained = 1.0 - float((residuals**2).sum()) / variance if variance else 1.0
    return MemoryEstimate(float(constant), float(slope), float(residuals.max()), explained)
