"""Decides the effect of a write on a record as it was read: a pure function, given the clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from bson.int64 import Int64

from mediator.model.apply import OperatorFailed, apply_operators
from mediator.schema.types import Values
from mediator.stores.mongo.codec import moment
from mediator.stores.mongo.layout import (
    INTENT_FIELDS,
    LIVE,
    Document,
    Layout,
    has_intent,
    is_fenced,
    is_live,
    unfenced,
)
from mediator.stores.mongo.outbox.entries import entries, pushes, recall, vacancy
from mediator.stores.mongo.sizes import (
    RecordFull,
    RecordTooLarge,
    require_room,
    size_after,
    size_of,
)
from mediator.stores.mongo.write.claims import claims_after, with_claims
from mediator.stores.port import Status, Write, WriteKind, WriteResult

__all__ = [
    "ConditionalUpdate",
    "Decision",
    "Insertion",
    "decide",
    "returned_values",
    "values_as_read",
]


@dataclass(frozen=True, slots=True)
class Insertion:
    """The document to insert if the record is still absent, and the result on success."""

    document: Document
    result: WriteResult
    stamp: int


@dataclass(frozen=True, slots=True)
class ConditionalUpdate:
    """An update under the condition that the record is unchanged, and the result on success."""

    query: Document
    update: Document
    result: WriteResult
    stamp: int


Decision: TypeAlias = WriteResult | Insertion | ConditionalUpdate | None
"""A result if there is nothing to write, or the step to write; None: there is no room yet."""


def decide(
    layout: Layout, write: Write, document: Document | None, stamp: int, token: str
) -> Decision:
    """Decide the effect of a write on the full document as it was read, or on an absent one."""
    result = recall(layout, document, write)
    if result is None and is_fenced(document, token):
        return WriteResult(Status.FENCED)
    intent = (document or {}).get("_intent", "")
    if result is None and intent != write.intent:
        return WriteResult(Status.LOCKED, intent=intent)
    result = result or _objection(layout, write, document)
    if result is not None:
        return result
    try:
        return _Revision(layout, write, document, stamp, token).decision()
    except OperatorFailed as error:
        return WriteResult(Status.REFUSED, failure=error.failure)
    except RecordTooLarge:
        return WriteResult(Status.TOO_LARGE)
    except RecordFull:
        return None


def returned_values(write: Write, values: Mapping[str, Any]) -> Values | None:
    """Return the values of a record that the write requests in return; None if it requests none."""
    if write.returning is None:
        return None
    names = write.returning or values
    return {name: values[name] for name in names if name in values}


def values_as_read(layout: Layout, write: Write) -> Values:
    """Return the values of a CREATE or REPLACE as later reads will return them."""
    return layout.decode_all(layout.encode_all(write.values))


def _objection(layout: Layout, write: Write, document: Document | None) -> WriteResult | None:
    present = is_live(document)
    if write.kind is WriteKind.CREATE and present:
        return WriteResult(Status.EXISTS)
    if not present and (write.require_present or write.kind in _NEED_PRESENCE):
        return WriteResult(Status.MISSING)
    if write.kind is WriteKind.DELETE and write.creation_version is not None:
        assert document is not None
        if document["creation_version"] > write.creation_version:
            return WriteResult(Status.MISSING)
    if not write.expect:
        return None
    current = layout.decode_versions(document) if present else {}
    if present and all(current.get(group, 0) == v for group, v in write.expect.items()):
        return None
    return WriteResult(Status.CONFLICT, versions=current)


_NEED_PRESENCE: Final = frozenset({WriteKind.UPDATE, WriteKind.DELETE})


class _Revision:
    """The next state of one record."""

    def __init__(
        self, layout: Layout, write: Write, document: Document | None, stamp: int, token: str
    ) -> None:
        self.layout = layout
        self.write = write
        self.document = document
        self.stamp = stamp
        self.token = token
        self.before = layout.decode_versions(document)
        written = {group: max(self.before.get(group, 0) + 1, stamp) for group in write.groups}
        self.versions = self.before | written
        self.latest = max(written.values(), default=stamp)

    def decision(self) -> Decision:
        if self.write.kind is WriteKind.DELETE:
            return self._deletion()
        if self.write.kind is WriteKind.UPDATE:
            return self._update()
        return self._replacement()

    def _deletion(self) -> ConditionalUpdate:
        changes = {"$set": {"tombstone": Int64(self.stamp)}, "$unset": {"values": ""}}
        highest = max(self.versions.values(), default=self.latest)
        result = WriteResult(Status.APPLIED, creation_version=highest)
        return self._change(result, changes, {}, None)

    def _replacement(self) -> Decision:
        created = not is_live(self.document)
        creation_version = self._creation_version(created=created)
        values = returned_values(self.write, values_as_read(self.layout, self.write))
        result = WriteResult(Status.APPLIED, created=created, creation_version=creation_version)
        stored = self.layout.encode_all(self.write.values)
        state = {"values": stored, "creation_version": Int64(creation_version)}
        if self.document is not None:
            changes = {"$set": state, "$unset": {"tombstone": ""}}
            return self._change(result, changes, stored, values)
        result = self._complete(result, values)
        lists = entries(self.layout, self.write, result, values, self.stamp)
        document = {
            **self.layout.key(self.write.id),
            **state,
            "versions": self.layout.encode_versions(self.versions),
            **lists,
            **claims_after(self.layout, self.write),
            "_bytes": self._size(stored, lists),
        }
        return Insertion(document, result, self.stamp)

    def _creation_version(self, *, created: bool) -> int:
        if self.write.creation_version is not None:
            return self.write.creation_version
        if created:
            return self.latest
        assert self.document is not None
        return int(self.document["creation_version"])

    def _update(self) -> ConditionalUpdate:
        assert self.document is not None
        stored = self.layout.decode_all(self.document.get("values"))
        after = {name: v for name, v in stored.items() if name not in self.write.unset}
        after.update(self.write.values)
        touched = set(self.write.values)
        fields, now = self.layout.fragment.fields, moment(self.stamp)
        for name, value in apply_operators(fields, self.write.operators, stored, now).items():
            touched.add(name)
            after[name] = value
        written = self.layout.encode_all({name: after[name] for name in touched})
        removed = self.layout.encode_all(dict.fromkeys(self.write.unset))
        stored_after = {
            k: v for k, v in self.document.get("values", {}).items() if k not in removed
        } | written
        changes: Document = {"$set": {f"values.{key}": value for key, value in written.items()}}
        if removed:
            changes["$unset"] = {f"values.{key}": "" for key in removed}
        result = WriteResult(
            Status.APPLIED, creation_version=int(self.document["creation_version"])
        )
        return self._change(result, changes, stored_after, returned_values(self.write, after))

    def _change(
        self, result: WriteResult, changes: Document, stored: Document, values: Values | None
    ) -> ConditionalUpdate:
        """Return the update with changes; `stored`: the record's values after it."""
        result = self._complete(result, values)
        paths = self.layout.version_paths
        versions = {paths[group]: Int64(self.versions[group]) for group in self.write.groups}
        lists = entries(self.layout, self.write, result, values, self.stamp)
        size = {"_bytes": self._size(stored, lists)}
        update = changes | {"$set": changes["$set"] | versions | size, "$push": pushes(lists)}
        if self.write.intent:
            update["$unset"] = update.get("$unset", {}) | INTENT_FIELDS
            update["$set"] |= {"_joint": self.write.intent}
        update = with_claims(self.layout, self.write, update)
        # A write without groups can have modifiers without fields, which old servers refuse.
        update = {modifier: fields for modifier, fields in update.items() if fields}
        return ConditionalUpdate(self._unchanged(), update, result, self.stamp)

    def _size(self, stored: Document, lists: Document) -> Int64:
        """Return the bound of the document's size after the write; raises if it is too large."""
        added = size_of(lists)
        size = size_after(self.document, stored, added)
        require_room(self.layout, stored, added, size, decided=bool(self.write.intent))
        return Int64(size)

    def _complete(self, result: WriteResult, values: Values | None) -> WriteResult:
        return replace(result, versions=self.versions, values=values or {})

    def _unchanged(self) -> Document:
        """Return the condition that no write came between: each raises a version of the fragment.

        It also requires room in the lists. A write without groups raises no version, so it requires
        that it is not yet remembered. Every write changes `_bytes`, so it must be unchanged.
        """
        assert self.document is not None
        deleted = self.document.get("tombstone")
        query = self.layout.key(self.write.id) | vacancy(self.write)
        query |= unfenced(self.token) | has_intent(self.write.intent)
        query |= LIVE if deleted is None else {"tombstone": deleted}
        query["_bytes"] = self.document.get("_bytes", {"$exists": False})
        for group, path in self.layout.version_paths.items():
            version = self.before.get(group)
            query[path] = {"$exists": False} if version is None else Int64(version)
        if self.write.remember is not None and not self.write.groups:
            query["_ops.op"] = {"$ne": self.write.operation}
        return query
