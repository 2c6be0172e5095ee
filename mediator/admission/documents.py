"""Rules and decisions as JSON, for the admin API, its pages and the log."""

from __future__ import annotations

from copy import copy
from dataclasses import asdict
from typing import Any

from mediator.admission.engine import Decision, RuleSet

__all__ = ["decision_document", "rules_document"]


def decision_document(decision: Decision) -> dict[str, Any]:
    """Return a decision as JSON, with the current state of runs and tenants."""
    actions = [
        {"action": action.name, "arguments": [copy(argument) for argument in action.arguments]}
        for action in decision.actions
    ]
    event = {name: copy(value) for name, value in decision.event.attributes.items()}
    return {
        "event": {"event": decision.event.name, **event},
        "rule": decision.rule.number,
        "line": decision.rule.at.line,
        "fires": decision.holds,
        "values": [{"text": value.text, "value": value.value} for value in decision.values],
        "actions": actions,
    }


def rules_document(rules: RuleSet) -> dict[str, Any]:
    """Return rules as JSON: their text and its parsed form."""
    return {
        "text": rules.text,
        "options": asdict(rules.options),
        "rules": [
            {
                "rule": rule.number,
                "line": rule.at.line,
                "event": rule.event,
                "condition": rule.condition.text,
                "actions": [action.text for action in rule.actions],
                "acts_on": " and ".join(rules.acted_on(rule)),
            }
            for rule in rules.rules
        ],
    }
