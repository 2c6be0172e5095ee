"""An in-memory store: it tests the conformance suite, and is the model of the property tests."""

from __future__ import annotations

import time
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace

from examples.stored_record import StoredRecord, apply_write
from mediator.model.operators import APPLICABLE, Operator
from mediator.schema.types import FieldType
from mediator.stores.port import (
    Claims,
    Fragment,
    Read,
    Record,
    RecordKey,
    RecordState,
    RememberedOperation,
    ServerFacts,
    Status,
    SystemConfig,
    TakenClaim,
    Write,
    WriteKind,
    WriteResult,
)

__all__ = ["ModelStore", "visible_record"]


class ModelStore:
    """Does what the docstrings of the port say, and no more."""

    def __init__(self, config: SystemConfig | None = None) -> None:
        self.config = config or SystemConfig("model", "model", "memory:")
        self.classes: dict[tuple[str, str], dict[str, StoredRecord]] = {}
        self.claimed: dict[tuple[str, str, str], Claims] = {}
        self.reserved: dict[tuple[str, str, str], Claims] = {}
        self.redo: dict[tuple[str, str, str], tuple[str, str]] = {}

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def ping(self) -> None: ...

    async def time_us(self) -> int:
        return time.time_ns() // 1_000

    async def facts(self) -> ServerFacts:
        return ServerFacts("model", "1", durability_s=None, replicas=0)

    def supports(self, operator: Operator, type_: FieldType) -> bool:
        return type_ in APPLICABLE[operator]

    async def prepare(self, fragment: Fragment, previous: Fragment | None = None) -> None:
        self.classes.setdefault((fragment.database, fragment.class_name), {})

    async def drop(self, fragment: Fragment) -> None:
        self.classes.pop((fragment.database, fragment.class_name), None)

    async def read(self, calls: Sequence[Read]) -> list[Record | None]:
        rows = [(call, self.rows(call.fragment).get(call.id)) for call in calls]
        return [
            self.record(c.fragment, c.id, c.fields) if r and r.is_live else None for c, r in rows
        ]

    async def write(self, calls: Sequence[Write], token: str = "") -> list[WriteResult]:
        return [self.apply(call, token) for call in calls]

    async def fence(self, fragment: Fragment, id_: str, token: str) -> dict[str, int]:
        row = self.row(fragment, id_)
        row.fenced.add(token)
        return dict(row.versions)

    async def lock(
        self, keys: Sequence[RecordKey], intent: str, redo: str = ""
    ) -> list[RecordState]:
        for fragment, id_ in keys:
            row = self.row(fragment, id_)
            if not row.intent and intent not in row.fenced:
                row.intent = intent
                self.redo[_key(fragment, id_)] = (intent, redo)
        return await self.record_states(keys)

    async def unlock(self, keys: Sequence[RecordKey], intent: str, *, joint: bool = False) -> None:
        for fragment, id_ in keys:
            row = self.row(fragment, id_)
            if row.intent == intent:
                row.intent = ""
                self.reserved.pop(_key(fragment, id_), None)
                row.joint = intent if joint and row.is_live else row.joint

    async def reserve(self, writes: Sequence[Write]) -> list[TakenClaim | None]:
        return [self._reserve(write) for write in writes]

    def _reserve(self, write: Write) -> TakenClaim | None:
        row = self.row(write.fragment, write.id)
        if not row.intent or row.intent != write.intent:
            return None
        taken = self.find_taken(write)
        if taken is None:
            key = _key(write.fragment, write.id)
            self.reserved[key] = {**self.reserved.get(key, {}), **write.claims}
        return taken

    def find_taken(self, write: Write) -> TakenClaim | None:
        """Return a claim of the write that another record holds."""
        fragment = write.fragment
        for constraint, claim in write.claims.items():
            for id_, row in self.newest(fragment).items():
                if claim is None or id_ == write.id:
                    continue
                key = _key(fragment, id_)
                if row.is_live and self.claimed.get(key, {}).get(constraint) == claim:
                    return TakenClaim(constraint, id_)
                if self.reserved.get(key, {}).get(constraint) == claim:
                    return TakenClaim(constraint, id_, row.intent)
        return None

    async def record_states(
        self, keys: Sequence[RecordKey], *, redo: bool = False
    ) -> list[RecordState]:
        states = [self._record_state(*key) for key in keys]
        return states if redo else [replace(state, redo="") for state in states]

    def _record_state(self, fragment: Fragment, id_: str) -> RecordState:
        row = self.row(fragment, id_)
        present = row.creation_version if row.is_live else None
        intent, stored = self.redo.get(_key(fragment, id_), ("", ""))
        redo = stored if row.intent == intent else ""
        return RecordState(present, dict(row.versions), row.intent, row.joint, redo)

    async def recall(
        self, fragment: Fragment, id_: str, operation: str
    ) -> RememberedOperation | None:
        return self.row(fragment, id_).remembered.get(operation)

    async def scan(
        self,
        fragment: Fragment,
        after: str | None,
        limit: int,
        fields: tuple[str, ...] | None = None,
    ) -> list[Record]:
        start = (after or "").encode()
        ids = sorted((i for i, r in self.rows(fragment).items() if r.is_live), key=str.encode)
        page = [i for i in ids if i.encode() > start][:limit]
        return [self.record(fragment, i, fields) for i in page]

    async def count(self, fragment: Fragment) -> int:
        return sum(row.is_live for row in self.rows(fragment).values())

    def rows(self, fragment: Fragment) -> dict[str, StoredRecord]:
        """Return the rows that reads see."""
        return self.classes[fragment.database, fragment.class_name]

    def newest(self, fragment: Fragment) -> dict[str, StoredRecord]:
        """Return the rows that writes see."""
        return self.rows(fragment)

    def row(self, fragment: Fragment, id_: str) -> StoredRecord:
        """Return the row that writes see."""
        return self.rows(fragment).setdefault(id_, StoredRecord())

    def record(self, fragment: Fragment, id_: str, fields: tuple[str, ...] | None) -> Record:
        return visible_record(self.rows(fragment)[id_], fragment, id_, fields)

    def apply(self, call: Write, token: str) -> WriteResult:
        row, clock_us = self.row(call.fragment, call.id), time.time_ns() // 1_000
        if not call.fragment.unique:
            return apply_write(row, call, token, clock_us)
        after = deepcopy(row)
        result = apply_write(after, call, token, clock_us)
        if result.status is not Status.APPLIED:
            return result
        if taken := self.find_taken(call):
            return WriteResult(Status.TAKEN, taken=taken)
        self.rows(call.fragment)[call.id] = after
        self.claim(call)
        return result

    def claim(self, write: Write) -> None:
        """Store the claims of a record after a write."""
        key = _key(write.fragment, write.id)
        previous = self.claimed.get(key, {}) if write.kind is WriteKind.UPDATE else {}
        self.claimed[key] = {**previous, **write.claims}
        self.reserved.pop(key, None)


def _key(fragment: Fragment, id_: str) -> tuple[str, str, str]:
    return fragment.database, fragment.class_name, id_


def visible_record(
    row: StoredRecord, fragment: Fragment, id_: str, fields: tuple[str, ...] | None
) -> Record:
    """Return a record as readers of the fragment see it."""
    record = row.to_record(id_, fields)
    return replace(record, intent=row.intent, joint=row.joint) if fragment.joint else record
