"""The port in memory, to test the suite itself with; and the reference for the stores' property."""

from __future__ import annotations

import time
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from mediator.operations.apply import Refused, apply_operator
from mediator.operations.operators import APPLICABLE, Operator
from mediator.schema.tree import MISSING, MissingType
from mediator.schema.types import FieldType, Value, Values
from mediator.stores.port import (
    Fragment,
    Read,
    Recalled,
    Record,
    ServerFacts,
    Standing,
    Status,
    SystemConfig,
    Write,
    WriteKind,
    WriteResult,
)

__all__ = ["ModelStore"]


@dataclass
class _Row:
    """A record or its tombstone, and the operations remembered with it."""

    there: bool = False
    birth: int = 0
    versions: dict[str, int] = field(default_factory=dict)
    values: Values = field(default_factory=dict)
    remembered: dict[str, Recalled] = field(default_factory=dict)
    fenced: set[str] = field(default_factory=set)
    mark: str = ""


def _picked(values: Values, fields: tuple[str, ...] | None) -> Values:
    chosen = values if fields is None else {n: values[n] for n in fields if n in values}
    return deepcopy(chosen)


def _rank(value: Value | MissingType, id_: str) -> tuple[int, Any, bytes]:
    if value is MISSING or value is None:
        return (0 if value is MISSING else 1, 0, id_.encode())
    return (2, value.encode() if isinstance(value, str) else value, id_.encode())


class ModelStore:
    """What the docstrings of the port say, and no more."""

    def __init__(self, config: SystemConfig | None = None) -> None:
        self.config = config or SystemConfig("model", "model", "memory:")
        self._classes: dict[tuple[str, str], dict[str, _Row]] = {}

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def ping(self) -> None: ...

    async def facts(self) -> ServerFacts:
        return ServerFacts("model", "1", durability_s=None, replicas=0)

    def supports(self, operator: Operator, type_: FieldType) -> bool:
        return type_ in APPLICABLE[operator]

    async def prepare(self, fragment: Fragment, previous: Fragment | None = None) -> None:
        self._classes.setdefault((fragment.database, fragment.class_name), {})

    async def drop(self, fragment: Fragment) -> None:
        self._classes.pop((fragment.database, fragment.class_name), None)

    async def read(self, calls: Sequence[Read]) -> list[Record | None]:
        rows = [(call, self._rows(call.fragment).get(call.id)) for call in calls]
        return [self._record(c.id, row, c.fields) if row and row.there else None for c, row in rows]

    async def write(self, calls: Sequence[Write], token: str = "") -> list[WriteResult]:
        return [self._write(call, token) for call in calls]

    async def fence(self, fragment: Fragment, id_: str, token: str) -> dict[str, int]:
        row = self._rows(fragment).setdefault(id_, _Row())
        row.fenced.add(token)
        return dict(row.versions)

    async def lock(self, fragment: Fragment, id_: str, mark: str) -> Standing:
        row = self._rows(fragment).setdefault(id_, _Row())
        row.mark = row.mark or mark
        return await self.standing(fragment, id_)

    async def unlock(self, fragment: Fragment, id_: str, mark: str) -> None:
        row = self._rows(fragment).get(id_)
        if row is not None and row.mark == mark:
            row.mark = ""

    async def standing(self, fragment: Fragment, id_: str) -> Standing:
        row = self._rows(fragment).get(id_) or _Row()
        return Standing(row.birth if row.there else None, dict(row.versions), row.mark)

    async def recall(self, fragment: Fragment, id_: str, operation: str) -> Recalled | None:
        row = self._rows(fragment).get(id_)
        return row.remembered.get(operation) if row else None

    async def scan(
        self,
        fragment: Fragment,
        after: str | None,
        limit: int,
        fields: tuple[str, ...] | None = None,
    ) -> list[Record]:
        start = (after or "").encode()
        ids = sorted((i for i, r in self._rows(fragment).items() if r.there), key=str.encode)
        rows = self._rows(fragment)
        return [self._record(i, rows[i], fields) for i in ids if i.encode() > start][:limit]

    async def count(self, fragment: Fragment) -> int:
        return sum(row.there for row in self._rows(fragment).values())

    async def ordered(
        self,
        fragment: Fragment,
        field_name: str,
        *,
        descending: bool,
        limit: int,
        after: tuple[Value | MissingType, str] | None = None,
        fields: tuple[str, ...] | None = None,
    ) -> list[Record]:
        rows = [(i, row) for i, row in self._rows(fragment).items() if row.there]
        ranked = sorted(
            ((_rank(row.values.get(field_name, MISSING), i), i, row) for i, row in rows),
            key=lambda entry: entry[0],
            reverse=descending,
        )
        if after is not None:
            edge = _rank(*after)
            ranked = [e for e in ranked if (e[0] < edge if descending else e[0] > edge)]
        return [self._record(i, row, fields) for _, i, row in ranked[:limit]]

    def _rows(self, fragment: Fragment) -> dict[str, _Row]:
        return self._classes[fragment.database, fragment.class_name]

    def _record(self, id_: str, row: _Row, fields: tuple[str, ...] | None) -> Record:
        return Record(id_, row.birth, dict(row.versions), _picked(row.values, fields))

    def _write(self, call: Write, token: str) -> WriteResult:
        row = self._rows(call.fragment).setdefault(call.id, _Row())
        if call.remember is not None and (known := row.remembered.get(call.operation)):
            if known.fingerprint != call.remember:
                return WriteResult(Status.REUSED)
            return replace(known.result, status=Status.REPLAYED)
        if token in row.fenced:
            return WriteResult(Status.FENCED)
        if row.mark != call.mark:
            return WriteResult(Status.LOCKED, mark=row.mark)
        if (refusal := self._refusal(call, row)) is not None:
            return refusal
        try:
            values = _new_values(call, row)
        except Refused as refused:
            return WriteResult(Status.REFUSED, failure=refused.failure)
        result = self._apply(call, row, values)
        row.mark = ""
        if call.remember is not None:
            row.remembered[call.operation] = Recalled(call.remember, result)
        return result

    def _refusal(self, call: Write, row: _Row) -> WriteResult | None:
        if call.kind is WriteKind.CREATE and row.there:
            return WriteResult(Status.EXISTS)
        needs = call.kind in (WriteKind.UPDATE, WriteKind.DELETE) or call.require_present
        spared = call.kind is WriteKind.DELETE and call.birth is not None and row.birth > call.birth
        if needs and (not row.there or spared):
            return WriteResult(Status.MISSING)
        current = row.versions if row.there else {}
        if any(current.get(group) != version for group, version in call.expect.items()):
            return WriteResult(Status.CONFLICT, versions=dict(current))
        return None

    def _apply(self, call: Write, row: _Row, values: Values) -> WriteResult:
        created = not row.there and call.kind is not WriteKind.DELETE
        clock = time.time_ns() // 1_000
        for group in call.groups:
            row.versions[group] = max(row.versions.get(group, 0) + 1, clock)
        row.there, row.values = call.kind is not WriteKind.DELETE, values
        highest = max(row.versions.values())
        if created or call.birth is not None:
            row.birth = highest if call.birth is None else call.birth
        birth = row.birth if row.there else highest
        returned = {} if call.returning is None else _picked(values, call.returning or None)
        return WriteResult(Status.APPLIED, created, birth, dict(row.versions), returned)


def _new_values(call: Write, row: _Row) -> Values:
    if call.kind is not WriteKind.UPDATE:
        return deepcopy(call.values)
    values = {**row.values, **deepcopy(call.values)}
    for name in call.unset:
        values.pop(name, None)
    for operator in call.operators:
        field_ = call.fragment.fields[operator.field]
        old = row.values.get(operator.field, MISSING)
        new = apply_operator(field_, old, operator, datetime.now(UTC))
        if not isinstance(new, MissingType):
            values[operator.field] = deepcopy(new)
    return values
