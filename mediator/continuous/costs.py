"""Costs of operators: seconds of work for a second of arrivals, by calibrated constants.

An operator's utilisation is the sum of counts (tuples, triggers, slides) times seconds for each. A
database fragment has a joint cost, since operators in one statement share its transfers: its cost
is not the sum of its operators' separate costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Protocol

from mediator.continuous.model import (
    Aggregate,
    Join,
    Operator,
    Project,
    Query,
    Select,
    Window,
    inputs_of,
)
from mediator.continuous.rates import Rates, rates_of, rates_over
from mediator.query.json_node import Node
from mediator.schema.errors import invalid

__all__ = ["CalibratedCosts", "Constants", "Costs", "Workload", "parse_constants"]

_MAX_S = 3_600.0


class Costs(Protocol):
    """Utilisations of the operators of one query; an engine keeps up with 1 or less."""

    def on_spark(self, operator: Operator) -> float:
        """Return the utilisation of an operator on Spark."""
        ...

    def in_database(self, operators: Sequence[Operator]) -> float:
        """Return the utilisation of operators in one statement; the last one is its root."""
        ...


@dataclass(frozen=True, slots=True)
class Constants:
    """Calibrated seconds, each for one unit of its name.

    Attributes:
        window_trigger: A micro-batch of the query: planning, scheduling and commit of Spark.
        window_tuple: A tuple read.
        stateless_tuple: A tuple selected or projected on Spark.
        join_trigger: A micro-batch of a join on Spark.
        join_tuple: A tuple received by the join.
        join_result: A tuple produced by the join.
        join_kept: A tuple of its inputs, read again at each micro-batch.
        aggregate_trigger: A micro-batch of an aggregate on Spark.
        aggregate_tuple: A tuple received by the aggregate.
        aggregate_kept: A tuple of its input, at each slide, unless tuples of a group are merged.
        aggregate_result: A tuple produced by the aggregate.
        statement: An execution of a statement in the database, with its transaction.
        shipped_tuple: A tuple sent to the database.
        scanned_tuple: A shipped tuple, at each slide.
        database_select: A tuple that a selection or projection of the statement reads, at a slide.
        database_join: A tuple that a join reads or produces, at a slide.
        database_aggregate: A tuple that an aggregate reads, at a slide.
        returned_tuple: A tuple of its result, at each slide.
    """

    window_trigger: float
    window_tuple: float
    stateless_tuple: float
    join_trigger: float
    join_tuple: float
    join_result: float
    join_kept: float
    aggregate_trigger: float
    aggregate_tuple: float
    aggregate_kept: float
    aggregate_result: float
    statement: float
    shipped_tuple: float
    scanned_tuple: float
    database_select: float
    database_join: float
    database_aggregate: float
    returned_tuple: float

    def to_json(self) -> dict[str, float]:
        return asdict(self)


def parse_constants(document: Any) -> Constants:
    """Read constants from JSON; raises `Invalid` with the location of every mistake."""
    node = Node(document, "", [])
    names = [constant.name for constant in fields(Constants)]
    node.shape(required=tuple(names))
    description = f"a number of seconds from 0 to {_MAX_S:g}"
    values = {name: node[name].read(0.0, _is_duration, description) for name in names}
    if node.errors:
        raise invalid(node.errors)
    return Constants(**values)


Counts = dict[str, float]
"""Counts a second of the events that constants apply to."""


class Workload:
    """Counts of a query, which constants are multiplied by and fitted to.

    Args:
        trigger_s: Seconds of arrivals in a micro-batch.
    """

    def __init__(self, query: Query, trigger_s: float) -> None:
        self._query = query
        self._triggers, self._slides = 1 / trigger_s, 1 / query.slide_s
        self._rates = dict(rates_of(query))

    def on_spark(self, operator: Operator) -> Counts:
        below = [self._of(input_) for input_ in inputs_of(operator)]
        # A join of the same inputs in another order produces the same, but receives other tuples.
        rates = rates_over(self._query, operator, below)
        received = sum(rates.received)
        match operator:
            case Window():
                return {"window_trigger": self._triggers, "window_tuple": received}
            case Join():
                return {
                    "join_trigger": self._triggers,
                    "join_tuple": received,
                    "join_result": rates.produced,
                    "join_kept": self._triggers * sum(rates_below.size for rates_below in below),
                }
            case Aggregate():
                partials = _partials(self._query, rates, below[0])
                return {
                    "aggregate_trigger": self._triggers,
                    "aggregate_tuple": received,
                    "aggregate_kept": self._slides * partials,
                    "aggregate_result": rates.produced,
                }
            case _:
                return {"stateless_tuple": received}

    def in_database(self, operators: Sequence[Operator]) -> Counts:
        """Return the counts of a statement; its root is the last of its operators."""
        slides = self._slides
        inside = {operator.name for operator in operators}
        counts = {
            "statement": self._triggers,
            "returned_tuple": slides * self._of(operators[-1]).size,
        }
        for operator in operators:
            below = inputs_of(operator)
            for input_ in below:
                if input_.name not in inside:
                    _add(counts, "shipped_tuple", self._of(input_).produced)
                    _add(counts, "scanned_tuple", slides * self._of(input_).size)
            read = sum(self._of(input_).size for input_ in below)
            match operator:
                case Select() | Project():
                    _add(counts, "database_select", slides * read)
                case Join():
                    _add(counts, "database_join", slides * (read + self._of(operator).size))
                case _:
                    _add(counts, "database_aggregate", slides * read)
        return counts

    def _of(self, operator: Operator) -> Rates:
        """Return the rates of an operator, including joins made by reordering."""
        if operator.name not in self._rates:
            below = [self._of(input_) for input_ in inputs_of(operator)]
            self._rates[operator.name] = rates_over(self._query, operator, below)
        return self._rates[operator.name]


class CalibratedCosts:
    """Costs of a query by calibrated constants."""

    def __init__(self, query: Query, constants: Constants, trigger_s: float) -> None:
        self._workload = Workload(query, trigger_s)
        self._constants = constants.to_json()

    def on_spark(self, operator: Operator) -> float:
        return self._seconds(self._workload.on_spark(operator))

    def in_database(self, operators: Sequence[Operator]) -> float:
        return self._seconds(self._workload.in_database(operators))

    def _seconds(self, counts: Counts) -> float:
        return sum(self._constants[name] * count for name, count in counts.items())


def _partials(query: Query, rates: Rates, below: Rates) -> float:
    """Return how many partial results an aggregate merges at a slide.

    Tuples of a group that enter and leave at the same slides are one partial result.
    """
    lifetime_s = below.size / below.produced if below.produced else 0.0
    panes = max(1.0, lifetime_s / query.slide_s)
    return min(below.size, panes * rates.size)


def _add(counts: Counts, name: str, count: float) -> None:
    counts[name] = counts.get(name, 0.0) + count


def _is_duration(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= _MAX_S
