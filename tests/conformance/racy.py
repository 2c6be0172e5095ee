"""A store whose conditional writes read, compare, and then write without comparing again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mediator.stores.port import Read, Record, Status, Store, Write, WriteKind, WriteResult

__all__ = ["RacyStore"]


class RacyStore:
    """Wraps a real store the way FerretDB 1.24 does it: the window is one round trip wide."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def write(self, calls: Sequence[Write], token: str = "") -> list[WriteResult]:
        return [await self._write(call) for call in calls]

    async def _write(self, call: Write) -> WriteResult:
        [record] = await self._store.read([Read(call.fragment, call.id)])
        refusal = _refusal(call, record)
        if refusal is not None:
            return refusal
        kind = WriteKind.REPLACE if call.kind is WriteKind.CREATE else call.kind
        [result] = await self._store.write([replace(call, kind=kind, expect={})])
        return result


def _refusal(call: Write, record: Record | None) -> WriteResult | None:
    if record is None:
        return WriteResult(Status.CONFLICT) if call.expect else None
    if call.kind is WriteKind.CREATE:
        return WriteResult(Status.EXISTS)
    if any(record.versions.get(group) != version for group, version in call.expect.items()):
        return WriteResult(Status.CONFLICT, versions=record.versions)
    return None
