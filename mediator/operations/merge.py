"""Merging the results of stores into one outcome, or into the error of a write.

Also the rule of classes that require If-Match (428, RFC 6585). These are pure functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from mediator.base.errors import (
    AlreadyExists,
    IdempotencyReused,
    Location,
    MediatorError,
    NotFound,
    NotUnique,
    ObjectTooLarge,
    OperatorRefused,
    PreconditionFailed,
    PreconditionRequired,
)
from mediator.model.apply import OperatorFailed, apply_operators
from mediator.model.operations import ANYTHING, Condition, Create, Get, Outcome, Put, WriteOperation
from mediator.model.operators import OperatorCall, OperatorFailure
from mediator.routing.fragments import ResourceFragments, Steps, resource_of
from mediator.routing.model import ClassRoute
from mediator.schema.tree import Field
from mediator.schema.types import Values
from mediator.schema.unique import constraint_fields
from mediator.stores.port import Fragment, Record, Status, TakenClaim, WriteKind, WriteResult

__all__ = [
    "check_if_match",
    "computed_values",
    "failure_of",
    "if_match_error",
    "merge_fragments",
    "merge_records",
    "merge_results",
    "narrow_to_creation",
    "not_unique",
    "outcome_of",
    "refusal_of",
]

_REASONS = {
    "overflow": "the result is beyond the range of the field's type",
    "below_minimum": "the result is below the field's minimum",
    "above_maximum": "the result is above the field's maximum",
    "too_long": "the result is longer than the field's max_length",
    "required": "the field is required",
}


def merge_records(
    route: ClassRoute, operation: Get, records: Sequence[Record | None]
) -> Outcome | None:
    """Merge the fragments of an object; None if it does not exist.

    The anchor decides whether the object exists, if it was read. A fragment of another creation
    version is left out. Groups that may not belong with the others are partial
    (`mediator.operations.torn_reads`).
    """
    return merge_fragments(route, resource_of(route, operation.fields), operation.id, records)


def merge_fragments(
    route: ClassRoute, resource: ResourceFragments, id_: str, records: Sequence[Record | None]
) -> Outcome | None:
    """Merge the fragments of one of many objects of one resource, as `merge_records`."""
    lead = (
        records[0]
        if resource.anchored
        # Without the anchor, the latest existing generation counts.
        else max(filter(None, records), key=_creation_version, default=None)
    )
    if lead is None:
        return None
    if len(records) == 1:
        return _merge_one(route, resource, lead)
    return _merge_several(route, resource, id_, records, lead)


def _merge_one(route: ClassRoute, resource: ResourceFragments, record: Record) -> Outcome:
    """Merge a single fragment. Hot: keyword arguments would double its time."""
    versions, pending = record.versions, record.intent != ""
    group_versions = {group: versions.get(group) for group in resource.groups}
    version, systems = route.schema_version, resource.systems
    return Outcome(
        record.id, record.values, group_versions, False, False, (), pending, version, systems
    )


def _creation_version(record: Record) -> int:
    return record.creation_version


def _merge_several(
    route: ClassRoute,
    resource: ResourceFragments,
    id_: str,
    records: Sequence[Record | None],
    lead: Record,
) -> Outcome:
    values: Values = {}
    group_versions: dict[str, int] = {}
    fragments: dict[Fragment, Record] = {}
    for (fragment, _), record in zip(resource.fragments, records, strict=True):
        if record is not None and record.creation_version == lead.creation_version:
            fragments[fragment] = record
            values.update(record.values)
            group_versions.update(record.versions)
    torn = _torn_groups(fragments)
    return Outcome(
        id=id_,
        values=values,
        versions={group: group_versions.get(group) for group in resource.groups},
        partial=tuple(g for g in resource.groups if g not in group_versions or g in torn),
        pending=any(record.intent for record in fragments.values()),
        schema_version=route.schema_version,
        systems=resource.systems,
    )


def _torn_groups(fragments: Mapping[Fragment, Record]) -> set[str]:
    """Return the groups that lag behind, if fragments differ in their last joint write."""
    if len({record.joint for record in fragments.values()}) == 1:
        return set()
    behind = [fragment for fragment, record in fragments.items() if record.intent]
    # Without an intent no fragment is known to lag behind, so any of them may.
    return {group for fragment in behind or fragments for group in fragment.groups}


def merge_results(route: ClassRoute, steps: Steps, results: Sequence[WriteResult]) -> Outcome:
    """Merge the results of all steps of a write that took effect.

    Versions are those of the groups that took part. Values are those that the client sent and
    those that the stores computed.
    """
    first = results[0]
    values: Values = {**steps.first.values, **first.values}
    versions: Mapping[str, int | None] = first.versions
    systems: tuple[str, ...] = (steps.first.fragment.system,)
    if steps.rest:
        for write, result in zip(steps.rest, results[1:], strict=True):
            versions = {**versions, **result.versions}
            values.update(write.values)
            values.update(result.values)
            systems += (write.fragment.system,)
    return Outcome(
        steps.first.id,
        None if steps.first.kind is WriteKind.DELETE else values,
        dict(sorted(versions.items())) if len(versions) > 1 else versions,
        first.created,
        first.status is Status.REPLAYED,
        schema_version=route.schema_version,
        systems=systems,
    )


def failure_of(operation: WriteOperation, result: WriteResult) -> MediatorError | None:
    """Return the error of a write that was not applied, for the client; None if it was."""
    if result.status is Status.APPLIED or result.status is Status.REPLAYED:
        return None
    name = f"{operation.class_name}/{operation.id}"
    conditional = bool(operation.condition.versions) or operation.condition.present is True
    match result.status:
        case Status.REUSED:
            return IdempotencyReused("The Idempotency-Key was used with another request before.")
        case Status.CONFLICT:
            return PreconditionFailed(f"{name} was changed meanwhile.")
        case Status.MISSING if conditional:
            return PreconditionFailed(f"{name} does not exist.")
        case Status.MISSING:
            return NotFound(f"{name} does not exist.")
        case Status.EXISTS if isinstance(operation, Put):
            return PreconditionFailed(f"{name} exists.")
        case Status.EXISTS:
            return AlreadyExists(f"{name} exists.")
        case Status.TAKEN:
            assert result.taken is not None
            return not_unique(operation.class_name, result.taken)
        case Status.TOO_LARGE:
            return too_large(name)
    assert result.failure is not None
    return refusal_of(result.failure)


def not_unique(class_name: str, taken: TakenClaim) -> NotUnique:
    """Return the error for values of a unique constraint that another object has."""
    names = constraint_fields(taken.constraint)
    together = f"these values of {', '.join(names)} together" if len(names) > 1 else "this value"
    locations = [Location(f"/{name}", f"another object has {together}") for name in names]
    return NotUnique(
        f"An object of {class_name} with {together} exists; nothing was written.",
        holder=taken.holder,
        locations=locations,
    )


def too_large(name: str) -> ObjectTooLarge:
    """Return the error for an object, or a single write, beyond its system's size limit."""
    return ObjectTooLarge(f"{name} would exceed the size limit of its system; nothing was written.")


def refusal_of(failure: OperatorFailure) -> OperatorRefused:
    reason = _REASONS.get(failure.reason, failure.reason)
    return OperatorRefused(
        "An operator cannot be applied to the current value.",
        locations=[Location(f"/{failure.field}", reason)],
    )


def outcome_of(
    route: ClassRoute, operation: WriteOperation, steps: Steps, results: Sequence[WriteResult]
) -> Outcome:
    """Merge the results of a write, or raise its error."""
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
    """Raise `PreconditionRequired` for a write that needs If-Match and has none."""
    if (
        route.schema.require_if_match
        and operation.condition == ANYTHING
        and not isinstance(operation, Create | Put)
    ):
        raise if_match_error(operation)


def if_match_error(operation: WriteOperation) -> PreconditionRequired:
    return PreconditionRequired(
        f"Writes to objects of {operation.class_name} need If-Match with the ETag last seen."
    )


def computed_values(
    fields: Mapping[str, Field], calls: Iterable[OperatorCall], current: Values
) -> Values:
    """Return the values that operators compute, as a store would.

    Raises:
        OperatorRefused: One cannot be applied to the current value.
    """
    try:
        return apply_operators(fields, calls, current, datetime.now(UTC))
    except OperatorFailed as error:
        raise refusal_of(error.failure) from error
