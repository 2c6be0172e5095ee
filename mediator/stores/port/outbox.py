"""Outboxes: changes that the feed has yet to get, in a log or in the records themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, runtime_checkable

from mediator.base.immutable import immutable
from mediator.model.change import Change
from mediator.stores.port.records import Fragment

__all__ = ["ChangeLog", "FragmentOf", "LogEntry", "PendingChanges", "UnrelayedChanges"]


FragmentOf: TypeAlias = Callable[[str, str], Fragment | None]
"""Finds the fragment of a class (id of the database, class) on a store, if any."""


@immutable
class LogEntry:
    """An entry of a change log: its position and its change; None if its class was dropped."""

    position: str
    change: Change | None


@runtime_checkable
class ChangeLog(Protocol):
    """A store whose outbox is one log, or several: each in the order in which writes took effect.

    Writes to one record are always in the same log. Entries stay for the relay to read again until
    they are trimmed.
    """

    def logs(self) -> Sequence[str]:
        """Name the logs."""

    async def changes(
        self, log: str, after: str | None, limit: int, fragment_of: FragmentOf
    ) -> list[LogEntry]:
        """Return up to `limit` changes beyond a position (None: from the oldest), oldest first.

        A change is returned only when none can still appear before it.
        """

    async def oldest(self, log: str) -> str | None:
        """Return the position of the oldest entry that is still there, or None."""

    async def trim(self, log: str, upto: str, keep_s: float) -> int:
        """Remove entries up to a position, but none younger than `keep_s`; return how many."""


@dataclass(frozen=True, slots=True)
class UnrelayedChanges:
    """Changes of one record that its store keeps until they are relayed.

    Attributes:
        fragment: The fragment.
        id: The object's id.
        changes: The changes in their order, those of one group with rising versions. The feed may
            have the first of them, if a relay ended before it acknowledged them.
        agrees: Whether the changes lead to the present values. If not, the last one was adapted,
            and the record or a store has a defect.
        receipt: What `PendingChanges.acknowledge` needs.
    """

    fragment: Fragment
    id: str
    changes: Sequence[Change]
    agrees: bool
    receipt: Any = field(repr=False, compare=False)


@runtime_checkable
class PendingChanges(Protocol):
    """A store whose outboxes are in the records themselves.

    No change is dropped: a record that has too many takes no more writes (`StoreBusy`). Changes are
    removed from the front only, so those that are read are all that the feed may lack, in order.
    """

    @property
    def sweep_every_s(self) -> float:
        """How often `sweep` is worth its cost, in seconds."""

    def take_written(self, limit: int) -> list[tuple[str, str, str]]:
        """Take up to `limit` records that this process wrote: id of the database, class, id.

        Each is returned once for all its writes so far. It is a hint only: `sweep` finds the writes
        of other processes, and of this one before it ended.
        """

    async def pending(self, fragment: Fragment, ids: Sequence[str]) -> list[UnrelayedChanges]:
        """Read the changes of some records; records without any are left out.

        Of a record with very many, the first are returned, and `take_written` returns it again.
        """

    async def sweep(self, fragment: Fragment, after: str | None, limit: int) -> list[str]:
        """Find up to `limit` records with changes, in the order of their ids."""

    async def acknowledge(self, done: Sequence[UnrelayedChanges]) -> None:
        """Remove changes that the feed has, unless another relay has done so."""
