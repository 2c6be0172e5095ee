"""Classes that require If-Match (428, RFC 6585): the rule, and the merging of results under it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mediator.base.errors import PreconditionFailed, PreconditionRequired
from mediator.model.operations import ANYTHING, Condition, Create, Outcome, Put, WriteOperation
from mediator.operations.merge import failure_of, merge_results
from mediator.routing.fragments import Steps
from mediator.routing.model import ClassRoute
from mediator.stores.port import Status, WriteResult

__all__ = ["check_if_match", "if_match_error", "narrow_to_creation", "outcome_of"]


def outcome_of(
    route: ClassRoute, operation: WriteOperation, steps: Steps, results: Sequence[WriteResult]
) -> Outcome:
    """Merge the results of a write, or raise why it was not applied."""
    if results[0].status is Status.APPLIED:
        return merge_results(route, steps, results)
    failure = failure_of(operation, results[0])
    if failure is None:
        return merge_results(route, steps, results)
    if _creates_only(route, operation) and isinstance(failure, PreconditionFailed):
        raise if_match_error(operation)
    raise failure


def _creates_only(route: ClassRoute, operation: WriteOperation) -> bool:
    """Whether a put without condition may only create, because the class requires If-Match."""
    return (
        route.schema.require_if_match
        and isinstance(operation, Put)
        and operation.condition == ANYTHING
    )


def narrow_to_creation(route: ClassRoute, operation: WriteOperation) -> WriteOperation:
    """Make a put without condition a creation only, where the class requires If-Match."""
    if _creates_only(route, operation):
        return replace(operation, condition=Condition(present=False))
    return operation


def check_if_match(route: ClassRoute, operation: WriteOperation) -> None:
    """Raise `PreconditionRequired` for a write that may not come without If-Match."""
    if (
        route.schema.require_if_match
        and operation.condition == ANYTHING
        and not isinstance(operation, Create | Put)
    ):
        raise if_match_error(operation)


def if_match_error(operation: WriteOperation) -> PreconditionRequired:
    """Return the error of a write without If-Match where its class requires it."""
    return PreconditionRequired(
        f"Writes to objects of {operation.class_name} need If-Match with the ETag last seen."
    )
