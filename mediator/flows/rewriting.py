"""Rewriting of a plan for batches (P to P'): every operator at its coarsest possible grain.

Messages of a batch agree on the attributes by which they are queued. The batch is split before the
first operator that needs further attributes, and merged after the last one.
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
    """Split a batch by attributes, execute the body for each part, and merge the parts.

    Attributes:
        attributes: Those on which the messages of the batch do not agree yet.
    """

    attributes: tuple[PartitioningAttribute, ...]
    body: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Once:
    """An operator, executed for the batch by its cost class; branches of a switch are rewritten.

    Attributes:
        branches: Of a switch: the branches of its cases, then of the default.
    """

    operator: Operator
    branches: tuple[tuple[Step, ...], ...] = ()


Step: TypeAlias = Once | Iterate


def rewrite(plan: Plan, agreed: Iterable[PartitioningAttribute] = ()) -> tuple[Step, ...]:
    """Return P' of the operators before the first write; later ones are for single messages.

    Args:
        agreed: The attributes on which the messages of every batch agree. If they agree on more, a
            split makes a single part.
    """
    return _rewrite(plan.shared_part, frozenset(agreed))


def steps_of_message(operators: Sequence[Operator]) -> tuple[Step, ...]:
    """Return steps for one message, which is never split."""
    return _rewrite(
        operators, frozenset().union(*(operator.needs for operator in operators_of(operators)))
    )


def _rewrite(operators: Sequence[Operator], grain: Grain) -> tuple[Step, ...]:
    steps: list[Step] = []
    remaining = list(operators)
    while remaining:
        split_by = _split_by(remaining[0], grain)
        if not split_by:
            steps.append(_rewrite_operator(remaining.pop(0), grain))
            continue
        body = [remaining.pop(0)]
        # Linear operators cost the same at any grain: they stay with the preceding operator.
        while remaining and (
            not remaining[0].is_shared or _split_by(remaining[0], grain) == split_by
        ):
            body.append(remaining.pop(0))
        steps.append(Iterate(in_order(split_by), _rewrite(body, grain | split_by)))
    return tuple(steps)


def _split_by(operator: Operator, grain: Grain) -> Grain:
    """Return the attributes by which a batch must be split for an operator."""
    return finer(operator.needs, grain) if operator.is_shared else frozenset()


def _rewrite_operator(operator: Operator, grain: Grain) -> Once:
    if not isinstance(operator, Switch):
        return Once(operator)
    return Once(operator, tuple(_rewrite(branch, grain) for branch in operator.branches))


def describe(steps: Iterable[Step]) -> list[dict[str, Any]]:
    """Return steps as JSON."""
    documents: list[dict[str, Any]] = []
    for step in steps:
        if isinstance(step, Iterate):
            documents.append({"op": "split", "by": describe_grain(step.attributes)})
            documents.append({"op": "iterate", "operators": describe(step.body)})
            documents.append({"op": "merge"})
        else:
            documents.append(_describe_operator(step))
    return documents


def _describe_operator(step: Once) -> dict[str, Any]:
    operator = step.operator
    document: dict[str, Any] = {"op": operator.op, "operator": operator.pointer}
    document["cost"] = "constant" if operator.is_shared else "linear"
    if step.branches:
        document["branches"] = [describe(branch) for branch in step.branches]
    return document
