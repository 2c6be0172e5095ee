"""Checks the names in rules and the types of their expressions, before they are in force."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from mediator.admission.problems import RuleProblem, RulesInvalid
from mediator.admission.syntax import (
    Action,
    Binary,
    Call,
    Constant,
    Expression,
    Negation,
    Path,
    Rule,
)
from mediator.admission.vocabulary import CONDITION, NUMBER, TEXT, Restricted, Type, Vocabulary
from mediator.base.suggestions import did_you_mean

__all__ = ["check"]

_LOGICAL: Final = frozenset({"AND", "OR"})
_EQUALITY: Final = frozenset({"=", "!="})
_ORDER: Final = frozenset({"<", "<=", ">", ">="})


def check(rules: Sequence[Rule], vocabulary: Vocabulary) -> None:
    """Check the names and types in rules.

    Raises:
        RulesInvalid: With the first error of each condition and each action.
    """
    problems = [problem for rule in rules for problem in _problems(rule, vocabulary)]
    problems += _permanent_effects(
        [action for rule in rules for action in rule.actions], vocabulary
    )
    if problems:
        raise RulesInvalid(problems)


def _problems(rule: Rule, vocabulary: Vocabulary) -> Iterator[RuleProblem]:
    if rule.event not in vocabulary.events:
        detail = f"there is no event {rule.event}{did_you_mean(rule.event, vocabulary.events)}"
        yield RuleProblem(rule.event_at, detail)
        return
    rule_check = _Check(rule, vocabulary)
    steps: list[Callable[[], None]] = [
        partial(rule_check.expect, rule.condition, CONDITION),
        *(partial(rule_check.check_action, action) for action in rule.actions),
    ]
    for step in steps:
        try:
            step()
        except RuleProblem as problem:
            yield problem


def _permanent_effects(actions: Sequence[Action], vocabulary: Vocabulary) -> Iterator[RuleProblem]:
    """Find actions whose effect no rule ends: their subjects would stay stopped for ever."""
    present = {action.name for action in actions}
    for action in actions:
        action_type = vocabulary.actions.get(action.name)
        if action_type and action_type.undone_by and action_type.undone_by not in present:
            yield RuleProblem(
                action.at, f"no rule undoes {action.name}: {action_type.undone_by} is missing"
            )


@dataclass(frozen=True, slots=True)
class _Check:
    """The check of one rule.

    Attributes:
        subject: The subject of the enclosing predicate, if any.
    """

    rule: Rule
    vocabulary: Vocabulary
    subject: str | None = None

    def expect(self, expression: Expression, expected: Type) -> None:
        actual = self._type(expression)
        if actual != expected:
            detail = f"`{expression.text}` is a {actual}, and a {expected} is expected"
            raise RuleProblem(expression.at, detail)

    def check_action(self, action: Action) -> None:
        action_type = self.vocabulary.actions.get(action.name)
        if action_type is None:
            raise self._unknown(action, "action", self.vocabulary.actions)
        _check_count(action, len(action_type.parameters))
        for argument, expected in zip(action.arguments, action_type.parameters, strict=True):
            self._check_argument(argument, expected)
        self._check_extent(action)

    def _check_argument(self, argument: Expression, expected: Type | Restricted) -> None:
        if not isinstance(expected, Restricted):
            self.expect(argument, expected)
            return
        self.expect(argument, expected.base)
        if isinstance(argument, Constant) and not expected.accepts(argument.value):
            detail = f"{expected.expected} is expected, and not {argument.text}"
            raise RuleProblem(argument.at, detail)

    def _check_extent(self, action: Action) -> None:
        """Check that the rule has one extent: one replica for all, or each replica for itself."""
        actions, event = self.vocabulary.actions, self.vocabulary.events[self.rule.event]
        extent, first = actions[action.name].extent, self.rule.actions[0].name
        if first in actions and actions[first].extent != extent:
            detail = (
                f"{first} and {action.name} belong in two rules: the one acts on what all replicas"
                " share, the other on each replica"
            )
            raise RuleProblem(action.at, detail)
        if event.extent not in (None, extent):
            detail = (
                f"{action.name} acts on each replica, and one of them notices {self.rule.event}"
                " for all: let a rule on Timer do it"
            )
            raise RuleProblem(action.at, detail)

    def _type(self, expression: Expression) -> Type:
        match expression:
            case Constant():
                return TEXT if isinstance(expression.value, str) else NUMBER
            case Path():
                return self._type_of_path(expression)
            case Call():
                return self._type_of_call(expression)
            case Negation():
                expected = CONDITION if expression.logical else NUMBER
                self.expect(expression.operand, expected)
                return expected
            case Binary():
                return self._type_of_binary(expression)

    def _type_of_binary(self, binary: Binary) -> Type:
        operator = binary.operator
        if operator in _EQUALITY:
            self.expect(binary.right, self._comparable(binary.left))
            return CONDITION
        expected = CONDITION if operator in _LOGICAL else NUMBER
        self.expect(binary.left, expected)
        self.expect(binary.right, expected)
        return CONDITION if operator in _ORDER else expected

    def _comparable(self, expression: Expression) -> Type:
        actual = self._type(expression)
        if actual == CONDITION or actual in self.vocabulary.subjects:
            raise RuleProblem(
                expression.at, f"`{expression.text}` is a {actual}: compare its parts"
            )
        return actual

    def _type_of_path(self, path: Path) -> Type:
        if len(path.names) == 1:
            return self._type_of_name(path)
        first, *names = path.names
        if first != self.rule.variable:
            raise RuleProblem(path.at, f"there is no {first}: the event is {self.rule.variable}")
        attributes, type_ = self.vocabulary.events[self.rule.event].attributes, self.rule.event
        for name in names:
            if name not in attributes:
                detail = f"{type_} has no attribute {name}{did_you_mean(name, attributes)}"
                raise RuleProblem(path.at, detail)
            type_ = attributes[name]
            attributes = self.vocabulary.subjects.get(type_, {})
        return type_

    def _type_of_name(self, path: Path) -> Type:
        (name,) = path.names
        attributes = self.vocabulary.subjects[self.subject] if self.subject else {}
        types = {**self.vocabulary.constants, **attributes}
        if name not in types:
            prefix = f"a {self.subject} has no" if self.subject else "there is no"
            raise RuleProblem(path.at, f"{prefix} {name}{did_you_mean(name, types)}")
        return types[name]

    def _type_of_call(self, call: Call) -> Type:
        vocabulary = self.vocabulary
        if call.name in vocabulary.figures:
            _check_count(call, 0)
            self._check_reach(call, call.name)
            return NUMBER
        subject = vocabulary.existence.get(call.name) or vocabulary.selection.get(call.name)
        if subject is None:
            raise self._unknown(call, "function", vocabulary.functions)
        _check_count(call, 1)
        self._check_reach(call, subject)
        if self.subject is not None:
            raise RuleProblem(call.at, "a predicate holds no other predicate")
        _Check(self.rule, vocabulary, subject).expect(call.arguments[0], CONDITION)
        return CONDITION if call.name in vocabulary.existence else subject

    def _check_reach(self, call: Call, name: str) -> None:
        """Refuse a figure or a subject that is unknown where the rule is evaluated."""
        vocabulary, action = self.vocabulary, self.rule.actions[0].name
        extent = vocabulary.extents.get(name)
        if extent and action in vocabulary.actions and vocabulary.actions[action].extent != extent:
            detail = f"{call.name} is not known where {action} acts"
            raise RuleProblem(call.at, detail)

    def _unknown(self, call: Call | Action, kind: str, names: Iterable[str]) -> RuleProblem:
        if call.name in self.vocabulary.refused:
            return RuleProblem(call.at, f"{call.name}: {self.vocabulary.refused[call.name]}")
        return RuleProblem(
            call.at, f"there is no {kind} {call.name}{did_you_mean(call.name, names)}"
        )


def _check_count(call: Call | Action, expected: int) -> None:
    actual = len(call.arguments)
    if actual != expected:
        plural = "" if expected == 1 else "s"
        raise RuleProblem(
            call.at, f"{call.name} takes {expected} argument{plural}, and not {actual}"
        )
