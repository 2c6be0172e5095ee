"""Chunks of joint writes: as many operations as one entry of the log may hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from mediator.model.operations import Delete, ReadModifyWrite, Update, WriteOperation
from mediator.routing.model import ClassRoute

__all__ = ["CHUNK_BYTES", "CHUNK_OPERATIONS", "RoutedWrite", "chunks"]

RoutedWrite: TypeAlias = tuple[ClassRoute, WriteOperation]
"""An operation, and where its class lives."""

CHUNK_OPERATIONS: Final = 50
"""Objects that go through the phases together."""

CHUNK_BYTES: Final = 4 * 2**20
"""About how much the operations of a chunk set; one that sets more is a chunk by itself."""

_REVISION_BYTES: Final = CHUNK_BYTES // 16
"""Assumed of a read-modify-write: what it sets is known only once the object has been read."""


def chunks(operations: Sequence[RoutedWrite]) -> list[Sequence[RoutedWrite]]:
    """Divide operations into chunks, in their order, by number and by size."""
    divided: list[Sequence[RoutedWrite]] = []
    start = size = 0
    for at, (_, operation) in enumerate(operations):
        own = _size(operation)
        if at > start and (at - start == CHUNK_OPERATIONS or size + own > CHUNK_BYTES):
            divided.append(operations[start:at])
            start, size = at, 0
        size += own
    return [*divided, operations[start:]] if operations else []


def _size(operation: WriteOperation) -> int:
    match operation:
        case Delete():
            return 0
        case ReadModifyWrite():
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
