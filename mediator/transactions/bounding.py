"""Refusing prepared operations whose records would be too large, before they are committed.

A committed write must happen, so a store that bounds its records (`Bounded`) is asked what it would
refuse. It answers from the sizes that came with the intents, and reads large records alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from mediator.base.errors import MediatorError
from mediator.operations.intents import IntentStore
from mediator.operations.merge import too_large
from mediator.stores.port import SizedWrite
from mediator.transactions.preparing import PendingOperation, PreparedOperation

__all__ = ["within_bounds"]


async def within_bounds(
    pending: Sequence[PendingOperation],
    prepared: Sequence[PreparedOperation | MediatorError],
    intents: IntentStore,
) -> list[PreparedOperation | MediatorError]:
    """Return operations, or why they cannot be applied; each is refused by itself."""
    answers = list(prepared)
    sized: list[tuple[int, SizedWrite]] = [
        (i, (write, one.locked.fragments[write.fragment]))
        for i, (one, answer) in enumerate(zip(pending, prepared, strict=True))
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
