"""Rates of a query's operators, and sizes of their relations.

Rates are source-driven: the tuples that an operator receives and produces for one second of
arrivals at the sources, which is not its output rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from mediator.continuous.model import Aggregate, Join, Operator, Query, Select, Window, inputs_of

__all__ = ["Rates", "rates_of", "rates_over"]


@dataclass(frozen=True, slots=True)
class Rates:
    """The rates of an operator.

    Attributes:
        received: Tuples from each input, or from the stream of a window.
        produced: Tuples produced.
        size: Tuples of its relation at a slide.
    """

    received: tuple[float, ...]
    produced: float
    size: float


def rates_of(query: Query) -> Mapping[str, Rates]:
    """Return the rates of all operators by name."""
    rates: dict[str, Rates] = {}

    def compute(operator: Operator) -> Rates:
        below = [compute(input_) for input_ in inputs_of(operator)]
        rates[operator.name] = rates_over(query, operator, below)
        return rates[operator.name]

    compute(query.root)
    return rates


def rates_over(query: Query, operator: Operator, below: list[Rates]) -> Rates:
    """Return the rates of an operator from its inputs' rates."""
    received = tuple(rates.produced for rates in below)
    match operator:
        case Window(range_s=range_s, rows=rows):
            rate = query.streams[operator.stream].rate
            size = rows if range_s is None else rate * range_s
            assert size is not None
            return Rates((rate,), rate, float(size))
        case Select(selectivity=share):
            return Rates(received, share * received[0], share * below[0].size)
        case Join():
            left, right = below
            share = 1 / prod(query.distinct[name] for name in operator.shared)
            produced = share * (left.produced * right.size + right.produced * left.size)
            return Rates(received, produced, share * left.size * right.size)
        case Aggregate(by=by):
            groups = min(prod(query.distinct[name] for name in by), max(1.0, below[0].size))
            return Rates(received, groups / query.slide_s, groups)
        case _:
            return Rates(received, received[0], below[0].size)
