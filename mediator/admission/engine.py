"""The rules in force: which of them fire on an event, with which actions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from mediator.admission.checking import check
from mediator.admission.evaluation import Evaluation, Event, Snapshot, UnknownFigure, Value
from mediator.admission.parser import parse
from mediator.admission.syntax import Action, Options, Rule
from mediator.admission.vocabulary import Extent, Vocabulary

__all__ = ["Decision", "PlannedAction", "RuleSet", "parse_rules"]

_PLURALS: Final = {"run": "runs", "flow": "flows", "query": "queries"}


@dataclass(frozen=True, slots=True)
class PlannedAction:
    """An action with its arguments; an argument is None if no subject could be chosen."""

    name: str
    arguments: tuple[Any, ...]

    @property
    def has_subject(self) -> bool:
        return None not in self.arguments


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision of a rule on an event.

    Attributes:
        holds: Whether its condition held: the rule has fired.
        values: The values of the parts of the condition.
        actions: The actions to execute.
    """

    rule: Rule
    event: Event
    holds: bool
    values: tuple[Value, ...]
    actions: tuple[PlannedAction, ...] = ()


@dataclass(frozen=True, slots=True)
class RuleSet:
    """Checked rules, in the order of the text."""

    text: str
    options: Options
    rules: tuple[Rule, ...]
    vocabulary: Vocabulary

    def extent(self, rule: Rule) -> Extent:
        """Return the extent of a rule's actions, which all agree."""
        return self.vocabulary.actions[rule.actions[0].name].extent

    def acted_on(self, rule: Rule) -> list[str]:
        """Return the names of a rule's targets."""
        if self.extent(rule) == "replica":
            return ["requests"]
        actions = [self.vocabulary.actions[action.name] for action in rule.actions]
        return sorted({_PLURALS[str(action.parameters[0])] for action in actions})

    def of(self, extent: Extent) -> RuleSet:
        """Return the rules with this extent."""
        rules = tuple(rule for rule in self.rules if self.extent(rule) == extent)
        return RuleSet(self.text, self.options, rules, self.vocabulary)

    def does(self, action: str) -> bool:
        """Whether any rule has this action."""
        return any(a.name == action for rule in self.rules for a in rule.actions)

    def decide(self, event: Event, snapshot: Snapshot, random: Random) -> list[Decision]:
        """Evaluate the rules on an event: all on the same snapshot, before any acts."""
        options = self.options
        evaluation = Evaluation(event, snapshot, self.vocabulary, options.hysteresis, random)
        matching = (rule for rule in self.rules if rule.event == event.name)
        return [_decide(rule, evaluation) for rule in matching]


def parse_rules(text: str, vocabulary: Vocabulary) -> RuleSet:
    """Parse and check rules.

    Raises:
        RulesInvalid: They are not valid rules, or name or compare something impossible.
    """
    options, rules = parse(text)
    check(rules, vocabulary)
    return RuleSet(text, options, rules, vocabulary)


def _decide(rule: Rule, evaluation: Evaluation) -> Decision:
    holds = evaluation.holds(rule.condition)
    values = tuple(evaluation.values)
    actions = tuple(_plan(rule.actions, evaluation)) if holds else ()
    return Decision(rule, evaluation.event, holds, values, actions)


def _plan(actions: Iterable[Action], evaluation: Evaluation) -> Iterable[PlannedAction]:
    for action in actions:
        try:
            arguments = tuple(evaluation.value(argument) for argument in action.arguments)
        except UnknownFigure:
            arguments = (None,)
        yield PlannedAction(action.name, arguments)
