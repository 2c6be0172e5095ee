"""Plans of continuous queries: both phases in sequence, at one rate or at many."""

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
from mediator.continuous.phase_two import SUBPLAN, PhysicalPlan, place, place_as

__all__ = ["Plan", "PlanOptions", "as_given", "everything_on", "make_plan", "reference_constants"]

_REFERENCE: Final = Path(__file__).with_name("reference_costs.json")


def reference_constants() -> Constants:
    """Return the constants measured on the machine described in docs/continuous-queries.md."""
    return parse_constants(orjson.loads(_REFERENCE.read_bytes()))


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """The options of planning.

    Attributes:
        trigger_s: Seconds of arrivals in a micro-batch; None: one slide.
        reorder: Whether joins can be reordered.
        max_subplan: Maximum operators of a subplan; None: queries are not divided.
    """

    constants: Constants
    trigger_s: float | None = None
    capacity: Capacity = UNLIMITED
    reorder: bool = True
    max_subplan: int | None = SUBPLAN

    def costs(self, query: Query) -> CalibratedCosts:
        return CalibratedCosts(query, self.constants, self.trigger_s or query.slide_s)


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan of a query, with the query's joins in the plan's order.

    Attributes:
        phase_one_s: Seconds to order the joins.
        phase_two_s: Seconds to choose the engines.
    """

    query: Query
    physical: PhysicalPlan
    phase_one_s: float = 0.0
    phase_two_s: float = 0.0


def make_plan(query: Query, options: PlanOptions) -> Plan:
    """Return the best plan.

    Raises:
        TooManyPlans: The query must not be divided, and is too large.
    """
    started_at = perf_counter()
    if options.reorder:
        query = order_joins(query, options.costs(query), options.capacity)
    ordered_at = perf_counter()
    physical = place(query.root, options.costs(query), options.capacity, options.max_subplan)
    return Plan(query, physical, ordered_at - started_at, perf_counter() - ordered_at)


def everything_on(engine: Engine, query: Query, options: PlanOptions) -> Plan:
    """Return the plan with all operators on one engine, in their given order."""
    return as_given(query, {operator.name: engine for operator in relational(query.root)}, options)


def as_given(query: Query, engines: Mapping[str, Engine], options: PlanOptions) -> Plan:
    """Return the plan with the given engines of operators."""
    return Plan(query, place_as(query.root, engines, options.costs(query), options.capacity))
