"""Plans of continuous queries: both phases one after the other, at one rate or at many."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Final

import orjson

from mediator.continuous.costs import CalibratedCosts, Constants, parse_constants
from mediator.continuous.model import Query, relational
from mediator.continuous.order import UNLIMITED, Capacity, Engine
from mediator.continuous.phase_one import order_joins
from mediator.continuous.phase_two import SUBPLAN, PhysicalPlan, place, placed_as

__all__ = ["Plan", "PlanOptions", "as_given", "everything_on", "make_plan", "reference_constants"]

_REFERENCE: Final = Path(__file__).with_name("reference_costs.json")


def reference_constants() -> Constants:
    """Return what was measured on the machine that docs/continuous-queries.md names."""
    return parse_constants(orjson.loads(_REFERENCE.read_bytes()))


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What a plan is made by.

    Attributes:
        trigger_s: Seconds of arrivals in a micro-batch; None: those of a slide.
        reorder: Whether joins may be in another order than the query has.
        most: Operators of a subplan; None: a query is not divided.
    """

    constants: Constants
    trigger_s: float | None = None
    capacity: Capacity = UNLIMITED
    reorder: bool = True
    most: int | None = SUBPLAN

    def costs(self, query: Query) -> CalibratedCosts:
        return CalibratedCosts(query, self.constants, self.trigger_s or query.slide_s)


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan of a query, whose joins are in the order of the plan.

    Attributes:
        phase_one_s: Seconds that the order of joins took to find.
        phase_two_s: Seconds that the engines took.
    """

    query: Query
    physical: PhysicalPlan
    phase_one_s: float = 0.0
    phase_two_s: float = 0.0


def make_plan(query: Query, options: PlanOptions) -> Plan:
    """Return the best plan.

    Raises:
        TooManyPlans: The query is not to be divided, and too large.
    """
    began = perf_counter()
    if options.reorder:
        query = order_joins(query, options.costs(query), options.capacity)
    ordered = perf_counter()
    physical = place(query.root, options.costs(query), options.capacity, options.most)
    return Plan(query, physical, ordered - began, perf_counter() - ordered)


def everything_on(engine: Engine, query: Query, options: PlanOptions) -> Plan:
    """Return the plan with all operators on one engine, their order as it is."""
    return as_given(query, {each.name: engine for each in relational(query.root)}, options)


def as_given(query: Query, engines: Mapping[str, Engine], options: PlanOptions) -> Plan:
    """Return the plan with the given engines of operators."""
    return Plan(query, placed_as(query.root, engines, options.costs(query), options.capacity))
