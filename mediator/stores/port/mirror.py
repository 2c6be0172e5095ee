"""Copies of records that live elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from mediator.stores.port.records import Fragment, Record

__all__ = ["Mirror", "is_surpassed"]


@runtime_checkable
class Mirror(Protocol):
    """A store that can hold copies of records that live elsewhere, with the versions they have.

    Copies are no writes: they get no versions of this store, and nothing is said in its outbox. A
    copy only ever becomes newer: of one generation (creation version) in every group, or a later
        generation.
    """

    async def absorb(
        self, fragment: Fragment, records: Sequence[Record], *, force: bool = False
    ) -> list[bool]:
        """Make copies what the records say, as whole records, each atomically.

        `force` takes them in whatever is held: to make good a copy that is ahead of its original,
        because the original's store has lost writes.

        A record without a group of the fragment leaves it absent. Returns for each record whether
        the copy is now at least as new in every group (or of a later generation, or forgotten
        later). False: the copy is newer in one group and older in another; the caller reads again.
        """

    async def forget(self, fragment: Fragment, dead: Sequence[tuple[str, int]]) -> None:
        """Remove the copies of objects, given by id and the highest version of their tombstone.

        Copies born later stay. What was forgotten is remembered for `RETENTION_S` at least, so that
        a copy of the dead generation that comes late is not taken in.
        """


def is_surpassed(record: Record, held: Record | None) -> bool:
    """Whether a copy that was not taken in was not needed either.

    Args:
        record: What was to be taken in.
        held: The living copy that stood against it; None: it has been forgotten since.

    Returns:
        False if what is held is older in some group: then the two were read in parts at different
        times, and only a further look tells how the groups stand together.
    """
    if held is None or held.creation_version != record.creation_version:
        return True
    return all(held.versions.get(group, 0) >= v for group, v in record.versions.items())
