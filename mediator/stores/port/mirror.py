"""Copies of records of other stores, as a materialised view holds them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from mediator.stores.port.records import Fragment, Record

__all__ = ["Mirror", "is_surpassed"]


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


def is_surpassed(record: Record, held: Record | None) -> bool:
    """Whether a record that did not replace its copy is no newer.

    Args:
        record: The record.
        held: The live copy; None: it has been removed since.

    Returns:
        False if the copy is older in some group: then the groups were read at different times, and
        the caller has to read again.
    """
    if held is None or held.creation_version != record.creation_version:
        return True
    return all(held.versions.get(group, 0) >= v for group, v in record.versions.items())
