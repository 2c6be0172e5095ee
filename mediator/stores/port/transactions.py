"""Write intents: how one transaction holds several records."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeAlias, TypeGuard, runtime_checkable

from mediator.base.immutable import immutable
from mediator.stores.port.records import Fragment

__all__ = [
    "Lockable",
    "RecordKey",
    "RecordState",
    "by_fragment",
    "is_lockable",
    "record_states",
]

RecordKey: TypeAlias = tuple[Fragment, str]
"""A record: its fragment and the id of its object."""


@immutable
class RecordState:
    """The state of a record, present or not.

    Attributes:
        creation_version: The record's creation version; None if it is absent.
        versions: Versions by group, of a tombstone too.
        intent: Its write intent; empty if none.
    """

    creation_version: int | None
    versions: Mapping[str, int]
    intent: str


@runtime_checkable
class Lockable(Protocol):
    """A store whose records, absent ones too, can carry a write intent.

    An intent is no write: it makes no version and no outbox entry. Writes compare it in the step in
    which they take effect (`Write.intent`). It stays until it is removed, or until the write that
    it announces removes it.

    Keys of one call name different records. Each is treated atomically by itself.
    """

    async def lock(self, keys: Sequence[RecordKey], intent: str) -> list[RecordState]:
        """Set an intent on each record that has none; the states show which one it has now."""

    async def unlock(self, keys: Sequence[RecordKey], intent: str, *, joint: bool = False) -> None:
        """Remove an intent from the records that have this one.

        `joint`: its write has happened, without touching these records; those that are present
        record it as `Record.joint`.
        """

    async def record_states(self, keys: Sequence[RecordKey]) -> list[RecordState]:
        """Return the states of records."""


async def record_states(
    keys: Sequence[RecordKey],
    work: Callable[[Fragment, list[str]], Awaitable[Mapping[str, RecordState]]],
) -> list[RecordState]:
    """Return the states of records; `work` returns those of some records of one fragment."""
    states = {fragment: await work(fragment, ids) for fragment, ids in by_fragment(keys).items()}
    return [states[fragment][id_] for fragment, id_ in keys]


def by_fragment(keys: Sequence[RecordKey]) -> dict[Fragment, list[str]]:
    """Return the ids of each fragment."""
    ids: dict[Fragment, list[str]] = {}
    for fragment, id_ in keys:
        ids.setdefault(fragment, []).append(id_)
    return ids


def is_lockable(store: object) -> TypeGuard[Lockable]:
    """Whether a store is `Lockable`; cached by class, as by `is_queryable`."""
    return issubclass(type(store), Lockable)
