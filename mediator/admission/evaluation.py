"""Evaluates conditions and arguments of checked rules on one event and one snapshot."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, TypeAlias

from mediator.admission.syntax import Binary, Call, Constant, Expression, Negation, Path
from mediator.admission.vocabulary import Vocabulary
from mediator.base.offload import throttled

__all__ = ["Evaluation", "Event", "Snapshot", "Subject", "UnknownFigure", "Value"]

Subject: TypeAlias = dict[str, Any]
"""The attributes of a run, for example."""

_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ARITHMETIC: Final[Mapping[str, Callable[[float, float], float]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}


class UnknownFigure(Exception):
    """A figure or a kind of subjects is currently unknown, or a division is by zero.

    Then the condition does not hold.
    """


@dataclass(frozen=True, slots=True)
class Event:
    """An event: the name of its kind, and its attributes."""

    name: str
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state at one moment.

    Attributes:
        figures: Measured values by the names of their functions; a missing one is unknown.
        subjects: All subjects, by kind; a missing kind is unknown.
    """

    figures: Mapping[str, float] = field(default_factory=dict)
    subjects: Mapping[str, Sequence[Subject]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Value:
    """A part of a condition with its value: a figure's number, or whether the part holds."""

    text: str
    value: float | bool | None


@dataclass(eq=False)
class Evaluation:
    """The evaluation of the rules on one event and one snapshot.

    Attributes:
        values: The values of the parts of the last condition, for the log.
    """

    event: Event
    snapshot: Snapshot
    vocabulary: Vocabulary
    hysteresis: float
    random: Random
    values: list[Value] = field(default_factory=list, init=False)
    _subject: Subject | None = field(default=None, init=False)

    def holds(self, condition: Expression) -> bool:
        """Whether a condition holds; never if it needs an unknown figure."""
        self.values = []
        try:
            return bool(self.value(condition))
        except UnknownFigure:
            return False

    def value(self, expression: Expression) -> Any:
        """Return the value of an expression; raises `UnknownFigure`."""
        match expression:
            case Constant():
                return expression.value
            case Path():
                return self._value_of_path(expression)
            case Call():
                return self._value_of_call(expression)
            case Negation():
                inner = self.value(expression.operand)
                return not inner if expression.logical else -inner
            case Binary():
                return self._binary(expression)

    def _binary(self, binary: Binary) -> Any:
        left, right = self.value(binary.left), self.value(binary.right)
        match binary.operator:
            case "AND":
                return left and right
            case "OR":
                return left or right
            case "/" if right == 0:
                raise UnknownFigure
        if binary.operator in _ARITHMETIC:
            return _ARITHMETIC[binary.operator](left, right)
        left, right = self._with_hysteresis(binary, left, right)
        holds = _COMPARISONS[binary.operator](left, right)
        self._record(binary, holds)
        return holds

    def _with_hysteresis(self, binary: Binary, left: Any, right: Any) -> tuple[Any, Any]:
        """Lower the limit of a figure that must be below it.

        Rules that shed load act at the limit itself; rules that restore it wait for room.
        """
        share = 1 - self.hysteresis / 100
        if binary.operator in ("<", "<=") and self._is_figure(binary.left):
            return left, right * share
        if binary.operator in (">", ">=") and self._is_figure(binary.right):
            return left * share, right
        return left, right

    def _is_figure(self, expression: Expression) -> bool:
        return isinstance(expression, Call) and expression.name in self.vocabulary.figures

    def _value_of_path(self, path: Path) -> Any:
        first, *names = path.names
        if not names:
            if self._subject is not None and first in self._subject:
                return self._subject[first]
            return first  # a constant stands for itself
        value: Any = self.event.attributes
        for name in names:
            value = value[name]
        return value

    def _value_of_call(self, call: Call) -> Any:
        if call.name in self.vocabulary.figures:
            figure = self.snapshot.figures.get(call.name)
            self._record(call, figure)
            if figure is None:
                raise UnknownFigure
            return figure
        existence = self.vocabulary.existence
        subject = existence.get(call.name) or self.vocabulary.selection[call.name]
        matches = self._matching(subject, call.arguments[0])
        if call.name not in existence:
            return self.random.choice(matches) if matches else None
        self._record(call, bool(matches))
        return bool(matches)

    def _matching(self, subject: str, predicate: Expression) -> list[Subject]:
        """Return the subjects that meet a predicate."""
        if subject not in self.snapshot.subjects:
            raise UnknownFigure
        matches = []
        try:
            for candidate in throttled(self.snapshot.subjects[subject]):
                self._subject = candidate
                if self.value(predicate):
                    matches.append(candidate)
        finally:
            self._subject = None
        return matches

    def _record(self, expression: Expression, value: float | bool | None) -> None:
        if self._subject is None:
            self.values.append(Value(expression.text, value))
