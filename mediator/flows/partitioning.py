"""What the messages of a partition have in common: values of attributes, or cases of a switch."""

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
        text: The condition as JSON, by which conditions are compared: in Python 1 equals true.
        values: The listed values; None: it is a range.
        minimum, below: The bounds of the range, inclusive and exclusive; None: it is open there.
    """

    text: bytes
    values: tuple[Any, ...] | None = field(default=None, compare=False)
    minimum: float | None = field(default=None, compare=False)
    below: float | None = field(default=None, compare=False)

    def holds(self, value: Any) -> bool:
        if self.values is not None:
            return any(equal(value, listed) for listed in self.values)
        if type(value) not in (int, float):
            return False
        is_above = self.minimum is None or self.minimum <= value
        return is_above and (self.below is None or value < self.below)


@dataclass(frozen=True, slots=True)
class PartitioningAttribute:
    """An attribute that messages must agree on to be executed together.

    Attributes:
        name: The name of an attribute of arriving messages.
        conditions: The conditions of a switch's cases: values agree if the same condition is the
            first that holds, or none holds. Without conditions, values must be equal.
    """

    name: str
    conditions: tuple[Condition, ...] = ()

    @property
    def by(self) -> str:
        if not self.conditions:
            return "value"
        is_list = all(condition.values is not None for condition in self.conditions)
        return "list" if is_list else "range"

    def of(self, message: Mapping[str, Any]) -> Any:
        """Return a message's value, or the number of its case."""
        value = message[self.name]
        return first_case(self.conditions, value) if self.conditions else value


Grain: TypeAlias = frozenset[PartitioningAttribute]
"""The attributes that the messages of a batch, or of a part of it, agree on."""


def finer(needs: Grain, grain: Grain) -> Grain:
    """Return what messages must agree on in addition; equal values also have equal cases."""
    return frozenset(
        attribute
        for attribute in needs - grain
        if PartitioningAttribute(attribute.name) not in grain
    )


def in_order(grain: Iterable[PartitioningAttribute]) -> tuple[PartitioningAttribute, ...]:
    return tuple(
        sorted(
            grain,
            key=lambda attribute: (attribute.name, [case.text for case in attribute.conditions]),
        )
    )


def describe_grain(grain: Iterable[PartitioningAttribute]) -> list[dict[str, Any]]:
    """Return attributes as JSON."""
    return [{"attribute": attribute.name, "by": attribute.by} for attribute in grain]


def canonical(message: Mapping[str, Any], grain: Iterable[PartitioningAttribute]) -> bytes:
    """Return a message's values of attributes, equal for messages that agree on them."""
    values = [attribute.of(message) for attribute in grain]
    return orjson.dumps(values, option=orjson.OPT_SORT_KEYS)


def first_case(conditions: Sequence[Condition], value: Any) -> int:
    """Return the number of the first condition that holds; after the last comes the default."""
    matches = (number for number, condition in enumerate(conditions) if condition.holds(value))
    return next(matches, len(conditions))


def equal(one: Any, other: Any) -> bool:
    # In Python true equals 1, but not in JSON.
    return bool(one == other) and isinstance(one, bool) is isinstance(other, bool)
