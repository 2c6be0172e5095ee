"""Redo records: what a committed write is to apply, in the JSON that the log keeps."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from mediator.model.operations import Outcome
from mediator.model.operators import Operator, OperatorCall
from mediator.routing.fragments import Steps
from mediator.routing.model import ClassRoute
from mediator.schema.tagged import dump, load
from mediator.stores.port import Write, WriteKind
from mediator.transactions.preparing import PreparedOperation
from mediator.transactions.targets import Target

__all__ = ["dump_operation", "dump_outcome", "load_operation", "load_outcome"]


def dump_operation(operation: PreparedOperation) -> dict[str, Any]:
    """Put the work on one object into JSON."""
    told: dict[str, Any] = {"class": operation.target.route.schema.name, "id": operation.target.id}
    if operation.steps is None:
        assert operation.outcome is not None
        return {**told, "outcome": dump_outcome(operation.outcome)}
    steps = [_dump_write(write) for write in operation.steps.all]
    return {**told, "operation": operation.steps.first.operation, "steps": steps}


def load_operation(
    route: ClassRoute | None, told: Mapping[str, Any], intent: str
) -> PreparedOperation | Outcome:
    """Read work back, against the present route of its class.

    Returns:
        The outcome alone if there is nothing any more that it could be applied to.
    """
    if route is None:
        return _outcome_of(told)
    target = Target(route, told["id"])
    if "outcome" in told:
        return PreparedOperation(target, None, load_outcome(told["outcome"]))
    with suppress(KeyError):  # a fragment is no longer part of the class
        first, *rest = (_load_write(route, told, step, intent) for step in told["steps"])
        return PreparedOperation(target, Steps(first, tuple(rest)))
    return PreparedOperation(target, None, _outcome_of(told))


def _outcome_of(told: Mapping[str, Any]) -> Outcome:
    if "outcome" in told:
        return load_outcome(told["outcome"])
    return Outcome(told["id"], None, {}, replayed=True)


def _dump_write(write: Write) -> dict[str, Any]:
    return {
        "system": write.fragment.system,
        "kind": write.kind.name,
        "groups": list(write.groups),
        "values": dump(write.values),
        "unset": list(write.unset),
        "operators": [
            {"field": c.field, "operator": c.operator.value, "argument": dump(c.argument)}
            for c in write.operators
        ],
        "creation_version": write.creation_version,
        "remember": write.remember,
        "returning": None if write.returning is None else list(write.returning),
    }


def _load_write(
    route: ClassRoute, told: Mapping[str, Any], step: Mapping[str, Any], intent: str
) -> Write:
    returning = step["returning"]
    values = load(step["values"])
    assert isinstance(values, dict)
    return Write(
        fragment={f.system: f for f in route.fragments}[step["system"]],
        id=told["id"],
        kind=WriteKind[step["kind"]],
        operation=told["operation"],
        groups=tuple(step["groups"]),
        values=values,
        unset=tuple(step["unset"]),
        operators=tuple(
            OperatorCall(o["field"], Operator(o["operator"]), load(o["argument"]))
            for o in step["operators"]
        ),
        creation_version=step["creation_version"],
        remember=step["remember"],
        returning=None if returning is None else tuple(returning),
        intent=intent,
    )


def dump_outcome(outcome: Outcome) -> dict[str, Any]:
    """Put an answer into JSON."""
    return {
        "id": outcome.id,
        "values": None if outcome.values is None else dump(outcome.values),
        "versions": dict(outcome.versions),
        "created": outcome.created,
        "schema_version": outcome.schema_version,
        "systems": list(outcome.systems),
    }


def load_outcome(told: Mapping[str, Any]) -> Outcome:
    """Read an answer back."""
    values = None if told["values"] is None else load(told["values"])
    assert values is None or isinstance(values, dict)
    return Outcome(
        told["id"],
        values,
        dict(sorted(told["versions"].items())),  # PostgreSQL's JSON has an order of its own
        told["created"],
        replayed=True,
        schema_version=told["schema_version"],
        systems=tuple(told["systems"]),
    )
