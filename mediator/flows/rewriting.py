"""Rewriting a plan for batches (P to P'): every operator at the coarsest grain that it may have.

Messages of a batch agree on the attributes that they are queued by. Before the first operator that
needs further ones the batch is split by them; after the last one it is merged again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from mediator.flows.partitioning import (
    Grain,
    PartitioningAttribute,
    describe_grain,
    finer,
    in_order,
)
from mediator.flows.plan import Operator, Plan, Switch, operators_of

__all__ = ["Iterate", "Once", "Step", "describe", "rewrite", "steps_of_message"]


@dataclass(frozen=True, slots=True)
class Iterate:
    """Split a batch by attributes, do the body for each part of it, and merge them.

    Attributes:
        attributes: In addition to those that all messages of the batch agree on.
    """

    attributes: tuple[PartitioningAttribute, ...]
    body: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Once:
    """An operator, executed for the batch as its cost class says; branches of a switch rewritten.

    Attributes:
        branches: Of a switch: those of the cases, and at the end that of the default.
    """

    operator: Operator
    branches: tuple[tuple[Step, ...], ...] = ()


Step: TypeAlias = Once | Iterate


def rewrite(plan: Plan, agreed: Iterable[PartitioningAttribute] = ()) -> tuple[Step, ...]:
    """Return P' of the operators before the first write; those after it are for one message.

    Args:
        agreed: What the messages of every batch agree on. If they agree on more, a split makes one
            part of them.
    """
    return _rewrite(plan.shared_part, frozenset(agreed))


def steps_of_message(operators: Sequence[Operator]) -> tuple[Step, ...]:
    """Return steps for one message, which is never split."""
    return _rewrite(operators, frozenset().union(*(each.needs for each in operators_of(operators))))


def _rewrite(operators: Sequence[Operator], grain: Grain) -> tuple[Step, ...]:
    steps: list[Step] = []
    rest = list(operators)
    while rest:
        split_by = _split_by(rest[0], grain)
        if not split_by:
            steps.append(_once(rest.pop(0), grain))
            continue
        body = [rest.pop(0)]
        # Linear operators cost the same at any grain: they stay where the one before them is.
        while rest and (not rest[0].is_shared or _split_by(rest[0], grain) == split_by):
            body.append(rest.pop(0))
        steps.append(Iterate(in_order(split_by), _rewrite(body, grain | split_by)))
    return tuple(steps)


def _split_by(operator: Operator, grain: Grain) -> Grain:
    """Return the attributes by which a batch must be split for an operator."""
    return finer(operator.needs, grain) if operator.is_shared else frozenset()


def _once(operator: Operator, grain: Grain) -> Once:
    if not isinstance(operator, Switch):
        return Once(operator)
    return Once(operator, tuple(_rewrite(branch, grain) for branch in operator.branches))


def describe(steps: Iterable[Step]) -> list[dict[str, Any]]:
    """Return steps as JSON."""
    described: list[dict[str, Any]] = []
    for step in steps:
        if isinstance(step, Iterate):
            described.append({"op": "split", "by": describe_grain(step.attributes)})
            described.append({"op": "iterate", "operators": describe(step.body)})
            described.append({"op": "merge"})
        else:
            described.append(_described(step))
    return described


def _described(step: Once) -> dict[str, Any]:
    operator = step.operator
    described: dict[str, Any] = {"op": operator.op, "operator": operator.pointer}
    described["cost"] = "constant" if operator.is_shared else "linear"
    if step.branches:
        described["branches"] = [describe(branch) for branch in step.branches]
    return described
