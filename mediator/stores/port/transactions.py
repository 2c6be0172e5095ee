"""Records that carry the write intent of a write over several records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias, TypeGuard, runtime_checkable

from mediator.base.immutable import immutable
from mediator.stores.port.records import Fragment

__all__ = ["Lockable", "RecordKey", "RecordState", "is_lockable"]

RecordKey: TypeAlias = tuple[Fragment, str]
"""Names a record: its fragment, and the id of its object."""


@immutable
class RecordState:
    """What stands of a record, whether it is there or not.

    Attributes:
        creation_version: The record's creation_version; None if it is not there.
        versions: Versions by group, those of a tombstone too.
        intent: The write intent that lies on it; empty if none.
    """

    creation_version: int | None
    versions: Mapping[str, int]
    intent: str


@runtime_checkable
class Lockable(Protocol):
    """A store whose records, absent ones too, can carry a write intent, the *intent* of a write.

    An intent is no write: it makes no version, and nothing is said of it in the outbox. Writes
    compare it in the step in which they take effect (`Write.intent`). It stays until it is taken
    away, or the write that it announces takes it along.

    Keys of one call name different records. Each is treated atomically by itself.
    """

    async def lock(self, keys: Sequence[RecordKey], intent: str) -> list[RecordState]:
        """Set an intent on each record that has none; the answers tell which one it has now."""

    async def unlock(self, keys: Sequence[RecordKey], intent: str, *, joint: bool = False) -> None:
        """Take an intent away wherever it is this one.

        `joint`: its write has happened, without touching these records; those that are there note
        it as `Record.joint`.
        """

    async def record_states(self, keys: Sequence[RecordKey]) -> list[RecordState]:
        """Tell what stands of records."""


def is_lockable(store: object) -> TypeGuard[Lockable]:
    """Whether a store is `Lockable`; the class's answer is kept, as by `is_queryable`."""
    return issubclass(type(store), Lockable)
