"""Waves of joint writes: as many operations as one entry of the log may hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from mediator.model.operations import Delete, Revise, Update, WriteOperation
from mediator.routing.model import ClassRoute

__all__ = ["WAVE_BYTES", "WAVE_OPERATIONS", "Routed", "waves"]

Routed: TypeAlias = tuple[ClassRoute, WriteOperation]
"""An operation, and where its class lives."""

WAVE_OPERATIONS: Final = 50
"""Objects that go through the phases together. Waves overlap: while the systems apply one, the next
is prepared."""

WAVE_BYTES: Final = 4 * 2**20
"""What the operations of a wave set, about; one that sets more goes alone."""

_REVISION_BYTES: Final = WAVE_BYTES // 16
"""Stands for a revision: what it sets is known only once the object has been read."""


def waves(operations: Sequence[Routed]) -> list[Sequence[Routed]]:
    """Divide operations into waves, in their order, by number and by size."""
    divided: list[Sequence[Routed]] = []
    start = size = 0
    for at, (_, operation) in enumerate(operations):
        own = _size(operation)
        if at > start and (at - start == WAVE_OPERATIONS or size + own > WAVE_BYTES):
            divided.append(operations[start:at])
            start, size = at, 0
        size += own
    return [*divided, operations[start:]] if operations else []


def _size(operation: WriteOperation) -> int:
    match operation:
        case Delete():
            return 0
        case Revise():
            return _REVISION_BYTES
        case Update():
            arguments = [call.argument for call in operation.operators]
            return _bytes_of(operation.values) + _bytes_of(arguments)
    return _bytes_of(operation.values)


def _bytes_of(value: Any) -> int:
    """Estimate the length of a value as JSON: texts and keys count, all else little."""
    size, pending = 0, [value]
    while pending:
        current = pending.pop()
        size += 8
        if isinstance(current, str | bytes):
            size += len(current)
        elif isinstance(current, dict):
            size += sum(map(len, current))
            pending += current.values()
        elif isinstance(current, list | tuple):
            pending += current
    return size
