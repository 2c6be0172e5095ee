"""Records that carry the mark of a transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from mediator.immutable import immutable
from mediator.stores.port.records import Fragment

__all__ = ["Lockable", "Standing"]


@immutable
class Standing:
    """What stands of a record, whether it is there or not.

    Attributes:
        birth: The record's birth; None if it is not there.
        versions: Versions by group, those of a tombstone too.
        mark: The mark that lies on it; empty if none.
    """

    birth: int | None
    versions: Mapping[str, int]
    mark: str


@runtime_checkable
class Lockable(Protocol):
    """A store whose records, absent ones too, can carry the mark of a transaction.

    A mark is no write: it makes no version, and nothing is said of it in the outbox. Writes heed it
    in the step in which they take effect (`Write.mark`). It stays until it is taken away, or the
    write of its transaction takes it along.
    """

    async def lock(self, fragment: Fragment, id_: str, mark: str) -> Standing:
        """Mark a record that has no mark; the answer tells which one it has now."""

    async def unlock(self, fragment: Fragment, id_: str, mark: str) -> None:
        """Take a mark away, if it is this one."""

    async def standing(self, fragment: Fragment, id_: str) -> Standing:
        """Tell what stands of a record."""
