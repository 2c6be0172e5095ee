"""What messages of a partition agree on: values of attributes, or their cases in a switch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import orjson

__all__ = [
    "Condition",
    "Grain",
    "PartitioningAttribute",
    "canonical",
    "describe_grain",
    "equal",
    "finer",
    "first_case",
    "in_order",
]


@dataclass(frozen=True, slots=True)
class Condition:
    """When a case of a switch is chosen: a list of values, or a range of numbers.

    Attributes:
        text: The condition as JSON. Nothing else is compared: in Python 1 equals true.
        values: Those that are listed; None: it is a range.
        least, below: The range has the first and not the second; None: it is open there.
    """

    text: bytes
    values: tuple[Any, ...] | None = field(default=None, compare=False)
    least: float | None = field(default=None, compare=False)
    below: float | None = field(default=None, compare=False)

    def holds(self, value: Any) -> bool:
        if self.values is not None:
            return any(equal(value, each) for each in self.values)
        if type(value) not in (int, float):
            return False
        is_above = self.least is None or self.least <= value
        return is_above and (self.below is None or value < self.below)


@dataclass(frozen=True, slots=True)
class PartitioningAttribute:
    """What messages must agree on to be executed together.

    Attributes:
        name: Of an attribute that arrives.
        conditions: Of the cases of a switch: values agree for which the same one is the first to
            hold, or none. Without conditions values must be equal.
    """

    name: str
    conditions: tuple[Condition, ...] = ()

    @property
    def by(self) -> str:
        if not self.conditions:
            return "value"
        is_list = all(each.values is not None for each in self.conditions)
        return "list" if is_list else "range"

    def of(self, message: Mapping[str, Any]) -> Any:
        """Return what a message has: its value, or the number of its case."""
        value = message[self.name]
        return first_case(self.conditions, value) if self.conditions else value


Grain: TypeAlias = frozenset[PartitioningAttribute]
"""What the messages of a batch, or of a part of it, agree on."""


def finer(needs: Grain, grain: Grain) -> Grain:
    """Return what messages must agree on in addition: an equal value has an equal case."""
    return frozenset(
        each for each in needs - grain if PartitioningAttribute(each.name) not in grain
    )


def in_order(grain: Iterable[PartitioningAttribute]) -> tuple[PartitioningAttribute, ...]:
    return tuple(
        sorted(grain, key=lambda each: (each.name, [case.text for case in each.conditions]))
    )


def describe_grain(grain: Iterable[PartitioningAttribute]) -> list[dict[str, Any]]:
    """Return attributes as JSON."""
    return [{"attribute": each.name, "by": each.by} for each in grain]


def canonical(message: Mapping[str, Any], grain: Iterable[PartitioningAttribute]) -> bytes:
    """Return what a message has of attributes, alike for messages that agree on them."""
    values = [each.of(message) for each in grain]
    return orjson.dumps(values, option=orjson.OPT_SORT_KEYS)


def first_case(conditions: Sequence[Condition], value: Any) -> int:
    """Return the number of the first condition that holds; behind them is the default."""
    held = (number for number, each in enumerate(conditions) if each.holds(value))
    return next(held, len(conditions))


def equal(one: Any, other: Any) -> bool:
    # In Python true is 1, and in JSON it is not.
    return bool(one == other) and isinstance(one, bool) is isinstance(other, bool)
