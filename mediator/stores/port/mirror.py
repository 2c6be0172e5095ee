"""Copies of records of other stores, as a materialised view holds them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

from mediator.stores.port.records import Fragment, Read, Record

__all__ = ["Mirror", "ReadRecords", "are_as_new"]

ReadRecords: TypeAlias = Callable[[Sequence[Read]], Awaitable[Sequence[Record | None]]]
"""Reads records as `Store.read` does."""


@runtime_checkable
class Mirror(Protocol):
    """A store that can hold copies of records of other stores, with their versions.

    Copying is no write: it makes no version and no outbox entry. A copy only ever becomes newer: in
    every group of one generation (creation version), or of a later generation.
    """

    async def absorb(
        self, fragment: Fragment, records: Sequence[Record], *, force: bool = False
    ) -> list[bool]:
        """Replace copies by newer records, each whole and atomically.

        `force` replaces newer copies too: to repair a copy that is ahead of its original, because
        the store of the original has lost writes.

        A record without a group of the fragment leaves it absent. Returns for each record whether
        the copy is now at least as new in every group (or of a later generation, or removed
        later). False: the copy is newer in one group and older in another; the caller reads again.
        """

    async def forget(self, fragment: Fragment, tombstones: Sequence[tuple[str, int]]) -> None:
        """Remove the copies of objects, given by id and the highest version of their tombstone.

        Copies of later generations stay. The removal is remembered for `RETENTION_S` at least, so
        that a late copy of the deleted generation is refused.
        """


async def are_as_new(
    fragment: Fragment,
    records: Sequence[Record],
    left: Sequence[int],
    read: ReadRecords,
) -> list[bool]:
    """Return what `Mirror.absorb` returns.

    Args:
        fragment: The fragment.
        records: The records.
        left: The positions of those that did not replace their copies.
        read: Reads the live copies; None for what has been removed since.
    """
    copies = await read([Read(fragment, records[at].id, ()) for at in left]) if left else ()
    pairs = zip(left, copies, strict=True)
    older = {at for at, copy in pairs if copy is not None and _is_older(copy, records[at])}
    return [at not in older for at in range(len(records))]


def _is_older(copy: Record, record: Record) -> bool:
    """Whether a copy that was not replaced is older in some group, and newer in another."""
    if copy.creation_version != record.creation_version:
        return False
    return any(copy.versions.get(group, 0) < v for group, v in record.versions.items())
