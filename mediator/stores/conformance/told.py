"""What a store's change logs tell of a scratch class."""

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
from mediator.stores.conformance.scratch import Scratch, Subject
from mediator.stores.port import ChangeLog, Fragment, LogEntry, Store

__all__ = ["Listener", "Told", "change_log", "is_told", "json_of", "told"]

_BATCH: Final = 100
_PATIENCE_S: Final = 10.0
_PAUSE_S: Final = 0.005

# Where listening ended: a log may be long, and each check is about its end.
_ends: WeakKeyDictionary[Store, dict[str, str]] = WeakKeyDictionary()

Told: TypeAlias = tuple[str, str, int, Any, Any]
"""Of a change: group, kind, version, before, after."""


def change_log(store: Store) -> ChangeLog:
    """Return the store as a change log, or raise `NotOffered`."""
    if not isinstance(store, ChangeLog):
        raise NotOffered("the store keeps no change logs")
    return store


def told(change: Change) -> Told:
    """Return what is to be compared of a change."""
    return (change.group, change.kind, change.version, change.before, change.after)


def json_of(fragment: Fragment, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values in their JSON form."""
    encoders = {name: encoder(fragment.fields[name]) for name in values}
    return {
        name: value if value is None or (encode := encoders[name]) is None else encode(value)
        for name, value in values.items()
    }


@dataclass(slots=True)
class Listener:
    """Reads the logs on, and keeps what they tell of one class.

    Attributes:
        subject: The class.
        logged: Its entries, each with the name of its log, in the order of their logs.
        fragment: What entries are read by; None: the class as it was prepared.
    """

    subject: Subject
    logged: list[tuple[str, LogEntry]] = field(default_factory=list)
    fragment: Fragment | None = None

    @classmethod
    async def to(cls, scratch: Scratch, *fields: Field, groups: tuple[str, ...] = ()) -> Listener:
        """Prepare a class and listen to it; `NotOffered` if the store keeps no change logs."""
        change_log(scratch.store)
        return cls(await scratch.subject(*fields, groups=groups))

    async def changes_of(self, id_: str) -> list[Change]:
        """Return all changes of an object so far, and replace it by nothing.

        What is written last to a record is told last: all before it has been told by then.
        """
        marker = self.subject.replacement(id_)
        applied(await self.subject.write(marker), "the last write to be told")
        last = {change_id(marker.operation, group) for group in self.subject.fragment.groups}
        await self.until(last)
        return [change for change in self.changes(id_) if change.id not in last]

    def changes(self, id_: str | None = None) -> list[Change]:
        """Return what was told so far, of one object or of all."""
        some = [logged.change for _, logged in self.logged if logged.change is not None]
        return [change for change in some if id_ is None or change.object_id == id_]

    async def until(self, ids: AbstractSet[str]) -> None:
        """Listen until changes are told, by their ids."""
        try:
            async with asyncio.timeout(_PATIENCE_S):
                while not ids <= {change.id for change in self.changes()}:
                    await self.listen()
                    await asyncio.sleep(_PAUSE_S)
        except TimeoutError:
            lacking = ids - {change.id for change in self.changes()}
            require(False, f"{len(lacking)} of {len(ids)} changes were not told in time")

    def positions(self) -> tuple[str, list[str]]:
        """Return the name of the log of all entries so far, of one record, and their positions."""
        ((log, _), *_) = self.logged
        return log, [logged.position for _, logged in self.logged]

    async def listen(self) -> None:
        """Read each log to its end."""
        store = change_log(self.subject.store)
        ends = _ends.setdefault(self.subject.store, {})
        for name in store.logs():
            while some := await store.changes(name, ends.get(name), _BATCH, self.of_class):
                _check_order(ends.get(name, ""), some)
                ends[name] = some[-1].position
                self.logged += [(name, logged) for logged in some if logged.change is not None]

    def of_class(self, database: str, class_name: str) -> Fragment | None:
        """Find the fragment that entries are read by."""
        own = self.fragment or self.subject.fragment
        return own if (database, class_name) == (own.database, own.class_name) else None


def _check_order(end: str, some: Sequence[LogEntry]) -> None:
    positions = [end, *(logged.position for logged in some)]
    require(
        all(a < b for a, b in pairwise(positions)),
        "positions of a log do not rise as texts",
    )


async def is_told(listener: Listener, id_: str, *expected: Told) -> None:
    """Require that so much is told of an object, and no more; it is replaced by nothing."""
    same([told(c) for c in await listener.changes_of(id_)], list(expected), f"told of {id_!r}")
