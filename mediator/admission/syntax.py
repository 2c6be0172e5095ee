"""The syntax of rules as a tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from mediator.admission.problems import Position

__all__ = [
    "Action",
    "Binary",
    "Call",
    "Constant",
    "Expression",
    "Negation",
    "Operator",
    "Options",
    "Path",
    "Rule",
]

Operator: TypeAlias = Literal["AND", "OR", "=", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/"]


@dataclass(frozen=True, slots=True)
class Constant:
    """A number or a text."""

    at: Position
    text: str
    value: float | str


@dataclass(frozen=True, slots=True)
class Path:
    """A name, or names with dots between them: ``e.run.prio``, ``state``, ``ACTIVE``."""

    at: Position
    text: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Call:
    at: Position
    text: str
    name: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Negation:
    """NOT of a condition, or the negative of a number."""

    at: Position
    text: str
    operand: Expression
    logical: bool


@dataclass(frozen=True, slots=True)
class Binary:
    at: Position
    text: str
    operator: Operator
    left: Expression
    right: Expression


Expression: TypeAlias = Constant | Path | Call | Negation | Binary
"""Every node has its position and its source text."""


@dataclass(frozen=True, slots=True)
class Action:
    at: Position
    text: str
    name: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: on an event, known by a variable, do the actions if the condition holds.

    Attributes:
        number: Its position among the rules, from 1.
    """

    number: int
    at: Position
    event: str
    event_at: Position
    variable: str
    condition: Expression
    actions: tuple[Action, ...]


@dataclass(frozen=True, slots=True)
class Options:
    """The options that ``SET`` sets.

    Attributes:
        timer: Seconds between two events of the timer.
        hysteresis: By how many percent of its limit a figure must be below it if a condition
            requires less than the limit; 0: none.
    """

    timer: float = 10.0
    hysteresis: float = 0.0
