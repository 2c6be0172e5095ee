"""Scratch classes for checks: in a scratch database, dropped afterwards."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from mediator.model.query import OrderBy
from mediator.schema.tree import MAIN_GROUP, SCRATCH_DATABASE, Field
from mediator.schema.types import Value, Values
from mediator.schema.unique import claims_of
from mediator.stores.conformance.expect import applied, present, require
from mediator.stores.port import (
    Claims,
    Fragment,
    Read,
    Record,
    SearchRequest,
    Store,
    StoreError,
    Write,
    WriteKind,
    WriteResult,
    is_queryable,
)

__all__ = ["SCRATCH_DATABASE", "Scratch", "ScratchClass", "fragment_of"]


def fragment_of(
    system: str,
    class_name: str,
    fields: Sequence[Field],
    groups: Sequence[str] = (),
    *,
    database: str = SCRATCH_DATABASE,
    schema_version: int = 1,
    unique: tuple[tuple[str, ...], ...] = (),
    indexes: tuple[tuple[str, ...], ...] = (),
) -> Fragment:
    """Describe a scratch class; `groups` names groups without fields."""
    grouped: dict[str, tuple[str, ...]] = dict.fromkeys(groups, ())
    for field in fields:
        group = field.group or MAIN_GROUP
        grouped[group] = (*grouped.get(group, ()), field.name)
    by_name = {field.name: field for field in fields}
    groups_of = grouped or {MAIN_GROUP: ()}
    return Fragment(
        system,
        database,
        class_name,
        by_name,
        groups_of,
        schema_version,
        unique=unique,
        indexes=indexes,
    )


@dataclass(frozen=True, slots=True)
class ScratchClass:
    """A scratch class, with the calls of the port as short verbs."""

    store: Store
    fragment: Fragment

    def writing(self, kind: WriteKind, id_: str, **options: Any) -> Write:
        """Build a write of all groups of the class, or of the touched groups for an update."""
        operation, groups = options.pop("operation", uuid.uuid4().hex), options.pop("groups", ())
        write = Write(self.fragment, id_, kind, operation, groups, **options)
        return replace(write, groups=groups or self._touched(write), claims=self._claims(write))

    def creation(self, id_: str, values: Values | None = None, **options: Any) -> Write:
        return self.writing(WriteKind.CREATE, id_, values=values or {}, **options)

    def replacement(self, id_: str, values: Values | None = None, **options: Any) -> Write:
        return self.writing(WriteKind.REPLACE, id_, values=values or {}, **options)

    def change(self, id_: str, values: Values | None = None, **options: Any) -> Write:
        return self.writing(WriteKind.UPDATE, id_, values=values or {}, **options)

    def deletion(self, id_: str, **options: Any) -> Write:
        return self.writing(WriteKind.DELETE, id_, **options)

    def every_kind(self, id_: str, values: Values, **options: Any) -> tuple[Write, ...]:
        """Build an UPDATE, a REPLACE and a DELETE with the same options."""
        builders = (self.change, self.replacement)
        return (
            *(build(id_, values, **options) for build in builders),
            self.deletion(id_, **options),
        )

    async def create(self, id_: str, values: Values | None = None, **options: Any) -> WriteResult:
        return await self.write(self.creation(id_, values, **options))

    async def replace(self, id_: str, values: Values | None = None, **options: Any) -> WriteResult:
        return await self.write(self.replacement(id_, values, **options))

    async def update(self, id_: str, values: Values | None = None, **options: Any) -> WriteResult:
        return await self.write(self.change(id_, values, **options))

    async def delete(self, id_: str, **options: Any) -> WriteResult:
        return await self.write(self.deletion(id_, **options))

    async def write(self, write: Write) -> WriteResult:
        return (await self.write_all([write]))[0]

    async def write_all(self, writes: Sequence[Write]) -> list[WriteResult]:
        """Send writes in one call; there must be one result for each."""
        results = await self.store.write(writes)
        require(len(results) == len(writes), f"{len(writes)} writes had {len(results)} results")
        return results

    async def apply_all(self, writes: Sequence[Write], label: str = "") -> list[WriteResult]:
        """Send writes in one call; each must take effect."""
        results = await self.write_all(writes)
        for write, result in zip(writes, results, strict=True):
            applied(result, f"{write.kind.name} {label}")
        return results

    async def read(self, id_: str, *fields: str) -> Record | None:
        """Read one record: all fields, or the named ones."""
        return (await self.read_all([id_], fields or None))[0]

    async def values(self, id_: str, *fields: str) -> Mapping[str, Value]:
        """Read the values of a record that must be present."""
        return present(await self.read(id_, *fields), f"reading {id_!r}").values

    async def versions(self, id_: str) -> dict[str, int]:
        """Read the versions of a record that must be present."""
        return dict(present(await self.read(id_), f"reading {id_!r}").versions)

    async def read_all(
        self, ids: Sequence[str], fields: tuple[str, ...] | None = None
    ) -> list[Record | None]:
        """Read records in one call; there must be one answer for each."""
        records = await self.store.read([Read(self.fragment, id_, fields) for id_ in ids])
        require(len(records) == len(ids), f"{len(ids)} reads had {len(records)} answers")
        return records

    async def in_order(self, name: str, *, descending: bool = False) -> list[Record] | None:
        """Search all records in the order of a field; None if the store does not order by it."""
        order = (OrderBy((name,), descending),)
        store, find = self.store, SearchRequest(self.fragment, None, order, 1_000)
        if not (is_queryable(store) and store.pushdown(self.fragment, None, order).ordered):
            return None
        return list((await store.find(find)).records)

    def _touched(self, write: Write) -> tuple[str, ...]:
        if write.kind is not WriteKind.UPDATE:
            return tuple(self.fragment.groups)
        names = {*write.values, *write.unset, *(call.field for call in write.operators)}
        return tuple(g for g, fields in self.fragment.groups.items() if names.intersection(fields))

    def _claims(self, write: Write) -> Claims:
        if write.kind is WriteKind.DELETE:
            return {}
        touched = (*write.values, *write.unset) if write.kind is WriteKind.UPDATE else None
        fragment = self.fragment
        return claims_of(fragment.unique, fragment.fields, dict(write.values), touched)


class Scratch:
    """A scratch namespace in one store: creates classes under unique names, and drops them."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._fragments: list[Fragment] = []

    async def subject(
        self,
        *fields: Field,
        groups: Sequence[str] = (),
        **options: Any,
    ) -> ScratchClass:
        """Prepare a new class with these fields, and with groups without fields.

        `options` are those of `fragment_of`.
        """
        name = f"c{uuid.uuid4().hex[:16]}"
        return await self.prepare(self.fragment(name, fields, groups, **options))

    def fragment(
        self, class_name: str, fields: Sequence[Field], groups: Sequence[str] = (), **options: Any
    ) -> Fragment:
        """Describe a class of the store; see `fragment_of`."""
        return fragment_of(self.store.config.name, class_name, fields, groups, **options)

    async def prepare(self, fragment: Fragment, previous: Fragment | None = None) -> ScratchClass:
        self._fragments.append(fragment)
        await self.store.prepare(fragment, previous)
        return ScratchClass(self.store, fragment)

    async def clear(self) -> None:
        """Drop every class created here; a failure to drop does not hide a check's result."""
        while self._fragments:
            with suppress(StoreError):
                await self.store.drop(self._fragments.pop())
