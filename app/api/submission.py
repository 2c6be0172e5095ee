"""Submission of single operations and batches to the data plane."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, ParamSpec, TypeAlias

from app.api.responses import result_of
from app.api.writes import PlannedOperation
from app.http.problems import HttpError, problem_of
from mediator.base.errors import MediatorError, PreconditionFailed
from mediator.base.offload import offload
from mediator.data_plane.port import DataPlane
from mediator.model.operations import Get, Outcome, WriteOperation

__all__ = ["Failures", "Item", "plan_or_refuse", "render_items", "submit", "submit_all"]

_P = ParamSpec("_P")

_LARGE_BATCH: Final = 100
"""Results from which on rendering them takes more than about a millisecond."""

_MAX_PROBLEMS: Final = 100

Item: TypeAlias = PlannedOperation | MediatorError | HttpError
"""An operation of a batch, or the error that planning it raised."""


@dataclass(slots=True)
class Failures:
    """The number of failed operations, and the problems of the first hundred."""

    failed: int = 0
    problems: list[dict[str, Any]] = field(default_factory=list)

    def add(self, error: MediatorError | HttpError, **labels: int | str) -> None:
        """Count a failure; `labels` identifies the operation."""
        self.failed += 1
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append({**labels, **problem_of(error).document()})


def plan_or_refuse(
    plan: Callable[_P, PlannedOperation], *arguments: _P.args, **keywords: _P.kwargs
) -> Item:
    """Plan an operation of a batch; an invalid one does not fail the others."""
    try:
        return plan(*arguments, **keywords)
    except (MediatorError, HttpError) as error:
        return error


def submit(
    plane: DataPlane, planned: PlannedOperation, refusal: MediatorError | None = None
) -> Awaitable[Outcome]:
    """Execute a write; a retry under the same key gets the first response.

    `refusal` is for a write whose condition no object can meet: it is raised, instead of
    `PreconditionFailed`, unless the write is a retry.
    """
    operation = planned.operation
    assert not isinstance(operation, Get)
    if operation.fingerprint is None:
        return plane.write(operation)
    return _submit_once(plane, operation, refusal)


async def _submit_once(
    plane: DataPlane, operation: WriteOperation, refusal: MediatorError | None
) -> Outcome:
    try:
        return await plane.recall(operation) or await plane.write(operation)
    except PreconditionFailed:
        if refusal is None:
            raise
        raise refusal from None


async def submit_all(
    plane: DataPlane, items: Sequence[Item], *, whole: bool = False
) -> list[Outcome | MediatorError | HttpError]:
    """Execute the planned operations in few round trips; the answers are in the items' order."""
    operations = [item.operation for item in items if isinstance(item, PlannedOperation)]
    outcomes = iter(await plane.batch(operations, whole=whole) if operations else [])
    return [next(outcomes) if isinstance(item, PlannedOperation) else item for item in items]


async def render_items(
    items: Sequence[Item], answers: Sequence[Outcome | MediatorError | HttpError], *, minimal: bool
) -> list[dict[str, Any]]:
    return await offload(len(items) > _LARGE_BATCH, _render_all, items, answers, minimal=minimal)


def _render_all(
    items: Sequence[Item], answers: Sequence[Outcome | MediatorError | HttpError], *, minimal: bool
) -> list[dict[str, Any]]:
    return [_render(*pair, minimal=minimal) for pair in zip(items, answers, strict=True)]


def _render(
    item: Item, answer: Outcome | MediatorError | HttpError, *, minimal: bool
) -> dict[str, Any]:
    if isinstance(answer, Outcome):
        assert isinstance(item, PlannedOperation)
        return result_of(item, answer, minimal=minimal)
    problem = problem_of(answer)
    result = {"status": problem.type.status, "problem": problem.document()}
    return {**result, "id": item.operation.id} if isinstance(item, PlannedOperation) else result
