"""Checking sizes of prepared operations, and reserving their claims, before they are committed.

A committed write must happen, so no other write may take its unique values. A reservation goes with
its intent: recovery need not know of any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from mediator.base.errors import MediatorError
from mediator.operations.calls import StoreCalls
from mediator.operations.intents import IntentStore
from mediator.operations.merge import not_unique, too_large
from mediator.stores.port import SizedWrite, TakenClaim, Write
from mediator.transactions.model import WriteBlocked
from mediator.transactions.preparing import PendingOperation, PreparedOperation

__all__ = ["ReserveResult", "check_sizes", "reserve"]

ReserveResult: TypeAlias = PreparedOperation | MediatorError | WriteBlocked
"""An operation whose values are reserved; or the error if it cannot be applied, or not now."""

_Reply: TypeAlias = TakenClaim | MediatorError | None


async def reserve(
    prepared: Sequence[PreparedOperation | MediatorError], calls: StoreCalls, intents: IntentStore
) -> list[ReserveResult]:
    """Reserve the values that operations claim; each is refused separately."""
    claiming = {
        i: [write for write in operation.steps.all if any(write.claims.values())]
        for i, operation in enumerate(prepared)
        if isinstance(operation, PreparedOperation) and operation.steps is not None
    }
    writes = [write for operation_writes in claiming.values() for write in operation_writes]
    if not writes:
        return list(prepared)
    replies = iter(await _reserve(writes, calls, intents))
    refusals = {
        i: [_refusal(write, next(replies)) for write in operation_writes]
        for i, operation_writes in claiming.items()
    }
    return [_first(refusals, i) or operation for i, operation in enumerate(prepared)]


async def _reserve(
    writes: Sequence[Write], calls: StoreCalls, intents: IntentStore
) -> list[_Reply]:
    """Reserve the values that writes claim, even if an expired object still holds them."""
    replies = await intents.reserve(writes)
    expiring = {
        i: (write.fragment, reply)
        for i, (write, reply) in enumerate(zip(writes, replies, strict=True))
        if isinstance(reply, TakenClaim) and write.fragment.ttl_s is not None and not reply.intent
    }
    if not expiring:
        return replies
    failures = await calls.delete_expired_holders(list(expiring.values()))
    retried = await intents.reserve([writes[i] for i in expiring])
    for i, failure, reply in zip(expiring, failures, retried, strict=True):
        replies[i] = failure or reply
    return replies


def _refusal(write: Write, reply: _Reply) -> MediatorError | WriteBlocked | None:
    if not isinstance(reply, TakenClaim):
        return reply
    if reply.intent and reply.intent != write.intent:
        return WriteBlocked({reply.intent: [(write.fragment, reply.holder)]})
    return not_unique(write.fragment.class_name, reply)


def _first(
    refusals: Mapping[int, Sequence[MediatorError | WriteBlocked | None]], index: int
) -> MediatorError | WriteBlocked | None:
    return next((refusal for refusal in refusals.get(index, ()) if refusal is not None), None)


async def check_sizes(
    pending: Sequence[PendingOperation],
    prepared: Sequence[PreparedOperation | MediatorError],
    intents: IntentStore,
) -> list[PreparedOperation | MediatorError]:
    """Return operations, or errors for records that would be too large; each separately.

    A store that bounds its records (`Bounded`) returns which it would refuse. It answers from the
    sizes that came with the intents, and reads only large records.
    """
    answers = list(prepared)
    sized: list[tuple[int, SizedWrite]] = [
        (i, (write, operation.locked.fragments[write.fragment]))
        for i, (operation, answer) in enumerate(zip(pending, prepared, strict=True))
        if isinstance(answer, PreparedOperation) and answer.steps is not None
        for write in answer.steps.all
        if intents.is_bounded(write.fragment.system)
    ]
    replies = await intents.exceeding([call for _, call in sized]) if sized else ()
    for (i, (write, _)), reply in zip(sized, replies, strict=True):
        if isinstance(reply, MediatorError):
            answers[i] = reply
        elif reply:
            answers[i] = too_large(f"{write.fragment.class_name}/{write.id}")
    return answers
