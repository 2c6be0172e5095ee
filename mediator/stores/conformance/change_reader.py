"""Reads the change logs of a store, and keeps the changes of one scratch class."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

from mediator.model.change import Change, change_id
from mediator.schema.tree import Field
from mediator.schema.values import encoder
from mediator.stores.conformance.expect import NotOffered, applied, require, same
from mediator.stores.conformance.scratch import Scratch, ScratchClass
from mediator.stores.port import (
    ChangeLog,
    Fragment,
    LogEntry,
    PendingChanges,
    Store,
    UnrelayedChanges,
)

__all__ = [
    "ChangeReader",
    "ChangeSummary",
    "change_log",
    "expect_changes",
    "json_of",
    "relay",
    "summary",
]

_BATCH: Final = 100
_DEADLINE_S: Final = 10.0
_PAUSE_S: Final = 0.005

# The last positions read: a log can be long, and each check is about its end.
_last_positions: WeakKeyDictionary[Store, dict[str, str]] = WeakKeyDictionary()

ChangeSummary: TypeAlias = tuple[str, str, int, Any, Any]
"""Group, kind, version, before and after image of a change."""


def change_log(store: Store) -> ChangeLog:
    """Return the store as a change log, or raise `NotOffered`."""
    if not isinstance(store, ChangeLog):
        raise NotOffered("the store keeps no change logs")
    return store


def summary(change: Change) -> ChangeSummary:
    """Return the fields of a change that checks compare."""
    return (change.group, change.kind, change.version, change.before, change.after)


async def relay(subject: ScratchClass, ids: Sequence[str]) -> list[UnrelayedChanges]:
    """Return and acknowledge the unrelayed changes of records, if records keep them."""
    store = subject.store
    if not isinstance(store, PendingChanges):
        return []
    pending = await store.pending(subject.fragment, ids)
    await store.acknowledge(pending)
    return pending


def json_of(fragment: Fragment, values: Mapping[str, Any]) -> dict[str, Any]:
    encoders = {name: encoder(fragment.fields[name]) for name in values}
    return {
        name: value if value is None or (encode := encoders[name]) is None else encode(value)
        for name, value in values.items()
    }


@dataclass(slots=True)
class ChangeReader:
    """Reads the logs incrementally, and keeps the changes of one class.

    Attributes:
        subject: The class.
        logged: Its entries, each with the name of its log, in the order of their logs.
        fragment: The fragment that decodes entries; None: the class as prepared.
    """

    subject: ScratchClass
    logged: list[tuple[str, LogEntry]] = field(default_factory=list)
    fragment: Fragment | None = None

    @classmethod
    async def to(
        cls,
        scratch: Scratch,
        *fields: Field,
        groups: tuple[str, ...] = (),
        unique: tuple[tuple[str, ...], ...] = (),
    ) -> ChangeReader:
        """Prepare a class; raises `NotOffered` if the store keeps no change logs."""
        change_log(scratch.store)
        return cls(await scratch.subject(*fields, groups=groups, unique=unique))

    async def changes_of(self, id_: str) -> list[Change]:
        """Return all changes of an object so far, and replace its record by an empty one.

        The last write to a record is logged last: once it is read, all others have been read.
        """
        marker = self.subject.replacement(id_)
        applied(await self.subject.write(marker), "the last write")
        last = {change_id(marker.operation, group) for group in self.subject.fragment.groups}
        await self.until(last)
        return [change for change in self.changes(id_) if change.id not in last]

    def changes(self, id_: str | None = None) -> list[Change]:
        """Return the changes so far, of one object or of all."""
        changes = [entry.change for _, entry in self.logged if entry.change is not None]
        return [change for change in changes if id_ is None or change.object_id == id_]

    async def until(self, ids: AbstractSet[str]) -> None:
        """Read until the changes with these ids have come."""
        try:
            async with asyncio.timeout(_DEADLINE_S):
                while not ids <= {change.id for change in self.changes()}:
                    await self.read()
                    await asyncio.sleep(_PAUSE_S)
        except TimeoutError:
            missing = ids - {change.id for change in self.changes()}
            require(False, f"{len(missing)} of {len(ids)} changes did not come in time")

    def positions(self) -> tuple[str, list[str]]:
        """Return the log of all entries so far, which are of one record, and their positions."""
        ((log, _), *_) = self.logged
        return log, [entry.position for _, entry in self.logged]

    async def read(self) -> None:
        store = change_log(self.subject.store)
        last_positions = _last_positions.setdefault(self.subject.store, {})
        for name in store.logs():
            while entries := await self._next(store, name):
                _check_order(last_positions.get(name, ""), entries)
                last_positions[name] = entries[-1].position
                self.logged += [(name, entry) for entry in entries if entry.change is not None]

    async def _next(self, store: ChangeLog, name: str) -> Sequence[LogEntry]:
        last_positions = _last_positions[self.subject.store]
        return (await store.changes(name, last_positions.get(name), _BATCH, self.of_class)).entries

    def of_class(self, database: str, class_name: str) -> Fragment | None:
        fragment = self.fragment or self.subject.fragment
        return (
            fragment if (database, class_name) == (fragment.database, fragment.class_name) else None
        )


def _check_order(last_position: str, entries: Sequence[LogEntry]) -> None:
    positions = [last_position, *(entry.position for entry in entries)]
    is_rising = all(a < b for a, b in pairwise(positions))
    require(is_rising, "positions of a log do not rise as texts")


async def expect_changes(reader: ChangeReader, id_: str, *expected: ChangeSummary) -> None:
    """Require the changes of an object; its record is replaced by an empty one."""
    same([summary(c) for c in await reader.changes_of(id_)], list(expected), f"changes of {id_!r}")
