"""The order of plans: first those that keep up, then by cost (the paper's Definition 1).

The paper gives each operator a core. Engines with a limited number of cores, or one machine for
both engines, are an addition: operators then share the cores, and their utilisations add up.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Final

__all__ = ["UNLIMITED", "Capacity", "Engine", "PlanCost", "Usage"]


class Engine(StrEnum):
    SPARK = "spark"
    DATABASE = "database"


@dataclass(frozen=True, slots=True)
class PlanCost:
    """Cost of a plan; it keeps up with its sources if its bottleneck is 1 or less.

    Attributes:
        bottleneck: The highest utilisation in it.
        total: The sum of the utilisations of its operators.
    """

    bottleneck: float
    total: float

    @property
    def is_feasible(self) -> bool:
        return self.bottleneck <= 1

    @property
    def order(self) -> tuple[bool, float]:
        """The sort key of plans: the minimum is the best."""
        return not self.is_feasible, self.total if self.is_feasible else self.bottleneck


@dataclass(frozen=True, slots=True)
class Usage:
    """Utilisations of operators: the highest one, and the sums of each engine."""

    largest: float = 0.0
    spark: float = 0.0
    database: float = 0.0

    def plus(self, other: Usage) -> Usage:
        return Usage(
            max(self.largest, other.largest),
            self.spark + other.spark,
            self.database + other.database,
        )

    def is_at_most(self, other: Usage) -> bool:
        """Whether no utilisation is above the other's."""
        return (
            self.largest <= other.largest
            and self.spark <= other.spark
            and self.database <= other.database
        )


@dataclass(frozen=True, slots=True)
class Capacity:
    """Cores of Spark, the database, and their common machine; infinity: one core per operator."""

    spark: float = inf
    database: float = inf
    machine: float = inf

    def cost(self, usage: Usage) -> PlanCost:
        total = usage.spark + usage.database
        shares = (usage.spark / self.spark, usage.database / self.database, total / self.machine)
        return PlanCost(max(usage.largest, *shares), total)


UNLIMITED: Final = Capacity()
