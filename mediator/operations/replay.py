"""Replaying answers that stores recorded under an operation id (idempotency)."""

from __future__ import annotations

import asyncio

from mediator.base.errors import IdempotencyReused
from mediator.model.operations import Create, Delete, Outcome, Put, Update, WriteOperation
from mediator.routing.model import ClassRoute
from mediator.schema.types import Values
from mediator.stores.port import Fragment, RememberedOperation, StoreError
from mediator.stores.systems import Systems, unavailable

__all__ = ["recall"]


async def recall(systems: Systems, route: ClassRoute, operation: WriteOperation) -> Outcome | None:
    """Merge the answers that the class's stores recorded for an operation; None: no answer.

    Raises:
        IdempotencyReused: The operation id was used with another fingerprint.
        Unavailable: A store of the class does not answer.
    """
    answers = await asyncio.gather(
        *(_recall(systems, fragment, operation) for fragment in route.fragments)
    )
    recorded = [answer for answer in answers if answer is not None]
    if not recorded:
        return None
    if recorded[0].fingerprint != operation.fingerprint:
        raise IdempotencyReused("The Idempotency-Key was used with another request before.")
    versions: dict[str, int | None] = {}
    values = _sent_values(operation)
    for answer in recorded:
        versions.update(answer.result.versions)
        if values is not None:
            values.update(answer.result.values)
    return Outcome(
        id=operation.id,
        values=values,
        versions=dict(sorted(versions.items())),
        created=recorded[0].result.created,
        replayed=True,
        schema_version=route.schema_version,
    )


async def _recall(
    systems: Systems, fragment: Fragment, operation: WriteOperation
) -> RememberedOperation | None:
    store = systems.get(fragment.system)
    try:
        return await store.recall(fragment, operation.id, operation.operation)
    except StoreError as error:
        raise unavailable(store, error, "read") from error


def _sent_values(operation: WriteOperation) -> Values | None:
    match operation:
        case Delete():
            return None
        case Create() | Put() | Update():
            return dict(operation.values)
    return {}
