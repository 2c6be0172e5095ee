"""The update operators, by name, and which field types each applies to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter
from typing import Final

from mediator.base.immutable import immutable
from mediator.schema.types import FieldType, Value

__all__ = [
    "APPLICABLE",
    "FIELD_OF",
    "WITHOUT_ARGUMENT",
    "Operator",
    "OperatorCall",
    "OperatorFailure",
]


class Operator(StrEnum):
    """An update that runs in the store. A null field counts as a missing one.

    ======================== ==================================================================
    inc mul                  arithmetic; missing counts as 0; beyond the type's range: refused
    min max                  keeps the smaller or larger; missing takes the argument
    set unset                replaces the value; removes it (argument: true)
    push push_front          adds one element to a list's end or front; missing is []
    pop shift                removes a list's last or first element (argument: true)
    remove                   removes every equal element of a list or set, or a key of a map
    add_to_set               adds an element to a set unless present
    put                      sets the keys of a map given as an object
    now                      sets a timestamp to the store's clock (argument: true)
    bit_and bit_or bit_xor   on 64-bit integers; missing counts as 0
    ======================== ==================================================================
    """

    INC = "inc"
    MUL = "mul"
    MIN = "min"
    MAX = "max"
    SET = "set"
    UNSET = "unset"
    PUSH = "push"
    PUSH_FRONT = "push_front"
    POP = "pop"
    SHIFT = "shift"
    REMOVE = "remove"
    ADD_TO_SET = "add_to_set"
    PUT = "put"
    NOW = "now"
    BIT_AND = "bit_and"
    BIT_OR = "bit_or"
    BIT_XOR = "bit_xor"


_NUMBERS = frozenset({FieldType.INTEGER, FieldType.FLOAT, FieldType.DECIMAL})
_LIST = frozenset({FieldType.LIST})
_INTEGER = frozenset({FieldType.INTEGER})
_ALL = frozenset(FieldType)

APPLICABLE: dict[Operator, frozenset[FieldType]] = {
    Operator.INC: _NUMBERS,
    Operator.MUL: _NUMBERS,
    Operator.MIN: _NUMBERS | {FieldType.TIMESTAMP},
    Operator.MAX: _NUMBERS | {FieldType.TIMESTAMP},
    Operator.SET: _ALL,
    Operator.UNSET: _ALL,
    Operator.PUSH: _LIST,
    Operator.PUSH_FRONT: _LIST,
    Operator.POP: _LIST,
    Operator.SHIFT: _LIST,
    Operator.REMOVE: frozenset({FieldType.LIST, FieldType.SET, FieldType.MAP}),
    Operator.ADD_TO_SET: frozenset({FieldType.SET}),
    Operator.PUT: frozenset({FieldType.MAP}),
    Operator.NOW: frozenset({FieldType.TIMESTAMP}),
    Operator.BIT_AND: _INTEGER,
    Operator.BIT_OR: _INTEGER,
    Operator.BIT_XOR: _INTEGER,
}


WITHOUT_ARGUMENT: Final = frozenset({Operator.POP, Operator.SHIFT, Operator.NOW})
"""Operators whose argument is always ``True``."""


@immutable
class OperatorCall:
    """One operator on one field. `set` and `unset` never appear here: a `Write` has its own.

    Attributes:
        argument: Decoded to the field's (or its items') Python form; ``True`` for pop, shift, now;
            a mapping of keys to items for put; a key for remove on a map.
    """

    field: str
    operator: Operator
    argument: Value


FIELD_OF: Final = attrgetter("field")
"""Returns the field of a call."""


@dataclass(frozen=True, slots=True)
class OperatorFailure:
    """Why a store refused an operator; nothing of the write was applied.

    The reason is ``overflow`` (beyond int64, finite double or 34 digits), ``below_minimum``,
    ``above_maximum``, ``too_long`` (max_length) or ``required`` (a required field would be unset).
    """

    field: str
    reason: str
