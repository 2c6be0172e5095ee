"""What a store's change logs tell of a scratch class."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

from mediator.changes.model import Change, change_id
from mediator.schema.values import encoder
from mediator.stores.conformance.expect import NotOffered, applied, require
from mediator.stores.conformance.scratch import Subject
from mediator.stores.port import ChangeLog, Fragment, Logged, Store

__all__ = ["Listener", "Told", "change_log", "json_of", "told"]

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
        logged: Its entries, in the order of their logs.
        fragment: What entries are read by; None: the class as it was prepared.
    """

    subject: Subject
    logged: list[Logged] = field(default_factory=list)
    fragment: Fragment | None = None

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
        some = [logged.change for logged in self.logged if logged.change is not None]
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

    async def listen(self) -> None:
        """Read each log to its end."""
        store = change_log(self.subject.store)
        ends = _ends.setdefault(self.subject.store, {})
        for name in store.logs():
            while some := await store.changes(name, ends.get(name), _BATCH, self.of_class):
                _check_order(ends.get(name, ""), some)
                ends[name] = some[-1].position
                self.logged += [logged for logged in some if logged.change is not None]

    def of_class(self, database: str, class_name: str) -> Fragment | None:
        """Find the fragment that entries are read by."""
        own = self.fragment or self.subject.fragment
        return own if (database, class_name) == (own.database, own.class_name) else None


def _check_order(end: str, some: Sequence[Logged]) -> None:
    positions = [end, *(logged.position for logged in some)]
    require(
        all(a < b for a, b in pairwise(positions)),
        "positions of a log do not rise as texts",
    )
