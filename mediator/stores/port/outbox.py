"""What a store tells of its changes: as a log, or in the records themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, runtime_checkable

from mediator.base.immutable import immutable
from mediator.model.change import Change
from mediator.stores.port.records import Fragment

__all__ = ["ChangeLog", "FragmentOf", "LogEntry", "PendingChanges", "UnrelayedChanges"]


FragmentOf: TypeAlias = Callable[[str, str], Fragment | None]
"""Finds the fragment of a class (id of the database, class) on the store that asks, if any."""


@immutable
class LogEntry:
    """An entry of a change log: where it stands, and the change; None if its class is gone."""

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
    """Changes of one record that its store keeps until the feed has them.

    Attributes:
        fragment: The fragment.
        id: The object's id.
        changes: The changes in their order, those of one group with rising versions. The feed may
            have the first of them already, if a relay died before it could acknowledge them.
        agrees: Whether the changes lead to the values that are there. If not, the last one was
            made to, and something is wrong with the record or with us.
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

    It drops no change: a record that has too many takes no more writes (`StoreBusy`). Changes leave
    a record from the front only, so what is read of it is all that the feed may lack, in order.
    """

    @property
    def sweep_every_s(self) -> float:
        """How often `sweep` is worth its price, in seconds."""

    def take_written(self, limit: int) -> list[tuple[str, str, str]]:
        """Take up to `limit` records that this process wrote: id of the database, class, id.

        Each is told once for all that was written to it so far. It is a hint only: what another
        process has written, or this one before it died, is found by `sweep`.
        """

    async def pending(self, fragment: Fragment, ids: Sequence[str]) -> list[UnrelayedChanges]:
        """Read the changes that wait in some records; records without any are left out.

        Of a record with very many, the first are returned, and `take_written` tells it again.
        """

    async def sweep(self, fragment: Fragment, after: str | None, limit: int) -> list[str]:
        """Find up to `limit` records in which changes wait, in the order of their ids."""

    async def acknowledge(self, done: Sequence[UnrelayedChanges]) -> None:
        """Remove changes that the feed has, unless somebody else has done so."""
