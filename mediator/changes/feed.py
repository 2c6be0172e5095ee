"""The feed as the mediator sees it: streams of changes, one for each partition of a database.

Every database is named by its id here, and so it is by all who bring changes or copy objects.

What relays bring comes with its place in the store's log. The feed keeps the place of the last
entry it has of each log (the *cursor*) and moves it in the same step in which it appends, so that
whatever is brought twice is taken once.

Places in a stream (*stream ids*) are text that only the feed understands; `BEGINNING` is before
every change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from mediator.base.errors import MediatorError
from mediator.base.lease import Lease
from mediator.model.change import Change

__all__ = [
    "BEGINNING",
    "Account",
    "Brought",
    "Event",
    "Feed",
    "FeedWentBack",
    "LeaseLost",
    "PositionGone",
    "Source",
]

BEGINNING: Final = "0-0"


class FeedWentBack(Exception):
    """The feed has lost what it had: its server fell back to an older state of its data."""


class LeaseLost(Exception):
    """The lease that was shown is held by another, or by nobody."""


class PositionGone(MediatorError):
    """Changes after the position are no longer kept, or the feed it was given by is lost."""


@dataclass(frozen=True, slots=True)
class Source:
    """A log of a system."""

    system: str
    log: str


@dataclass(frozen=True, slots=True)
class Brought:
    """What a relay has read of a log, of the changes of one database.

    Attributes:
        source: The log.
        after: The place from which it was read: all up to it must have been brought before.
        upto: The place up to which it was read.
        entries: The changes, each with its place; in the order of the log.
    """

    source: Source
    after: str
    upto: str
    entries: Sequence[tuple[str, Change]]


@dataclass(frozen=True, slots=True)
class Account:
    """What one replica has brought of the changes that waited in a system's records.

    Attributes:
        system: The system.
        replica: The replica.
        brought: How often it has brought something to the feed of each database.
    """

    system: str
    replica: str
    brought: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Event:
    """A change as it is handed to subscribers; `data` is its JSON document."""

    partition: int
    id: str
    class_name: str
    data: bytes


class Feed(Protocol):
    """The feeds of all databases. Every method raises `Unavailable` if they cannot be reached."""

    async def cursors(self, database: str, system: str) -> Mapping[str, str]:
        """Return the cursors of a system's logs, by log."""

    async def begin(self, database: str, source: Source, at: str) -> None:
        """Set the cursor of a log that has none."""

    async def append(
        self,
        database: str,
        brought: Sequence[Brought],
        lease: Lease,
        until_tick: int | None = None,
    ) -> int:
        """Append what is beyond the cursors and move them, all in one step.

        It may be done twice: what the cursors have passed is left out.

        Args:
            database: The database.
            brought: Of at least one log, all of one system. Those without entries are there for
                their cursors: to be compared, and moved.
            lease: The relay's.
            until_tick: What is told in the same step: that the feed then has every change of the
                system acknowledged before this tick. None: that is not known.

        Returns:
            How many changes were new.

        Raises:
            LeaseLost: The lease is not held, and nothing was done.
            FeedWentBack: A cursor is before its `Brought.after`, and nothing was done.
        """

    async def append_above(self, changes: Sequence[Change], account: Account | None = None) -> int:
        """Append changes, in order, whose version is above the last one of their group.

        Args:
            changes: The changes.
            account: Who brings them; what they have brought is brought up to date.

        Raises:
            FeedWentBack: The feed lacks something of what they have brought, and nothing was done
                for the database that `account` then lacks.
        """

    async def settled(self, changes: Sequence[Change]) -> None:
        """Note that the store of these appended changes tells them no more.

        What is known of their groups is forgotten after a while, unless more is appended.
        """

    async def publish_own(self, database: str, account: Account, until_tick: int) -> None:
        """Tell that the feed has every change that a replica made itself before `until_tick`.

        Raises:
            FeedWentBack: The feed lacks something of what it has brought.
        """

    async def leave(self, database: str, account: Account) -> None:
        """Take a replica out of account, which has brought everything and writes no more."""

    async def accounts(self, database: str, system: str) -> Mapping[str, int]:
        """Return what each replica has told of a system: the last tick of `publish_own`."""

    async def retire(self, database: str, system: str, accounts: Mapping[str, int]) -> None:
        """Forget replicas that are not registered any more; somebody has swept after them.

        One that has come back since, or told anything else, is left alone.

        Args:
            database: The database.
            system: The system.
            accounts: What they had told before the sweep began (`accounts`).
        """

    async def relayed_until(self, database: str) -> Mapping[str, int]:
        """Return for each system the tick before which all that was acknowledged is here.

        Who reads this first and the streams afterwards sees all of it. A system that has told
        nothing so far is left out, as is one whose writers are not known for sure
        (`mediator.changes.writers`).
        """

    async def tick(self) -> int:
        """Count on, and return the number: `relayed_until` is told by such numbers.

        All feeds share the count. It only rises, and tells what came first: what was acknowledged
        before this call is below the number, whatever the clock of any machine says.
        """

    async def read(
        self, database: str, partition: int, after: str, limit: int
    ) -> list[tuple[str, Change]]:
        """Return up to `limit` changes of a partition beyond a stream id, with theirs.

        Raises:
            PositionGone: Changes beyond it are no longer kept.
        """

    async def events(self, database: str, partition: int, after: str, limit: int) -> list[Event]:
        """Return the same as `read` for handing on."""

    async def follow(
        self, database: str, after: Sequence[str], limit: int, wait_s: float
    ) -> list[Event]:
        """Wait up to `wait_s` for events beyond a stream id in each partition."""

    async def last(self, database: str, partition: int) -> str:
        """Return the stream id of the newest change there ever was in a partition."""

    async def oldest(self, database: str, partition: int) -> str:
        """Return the stream id after which every change is kept."""

    async def generation(self, database: str) -> str:
        """Return the name of the feed's life; another one knows nothing of former positions."""

    async def renew_incarnation(self, database: str) -> None:
        """Begin another life: changes are missing that cannot be brought again."""

    async def trim(self, database: str) -> None:
        """Remove what is beyond the retention."""

    async def clear(self, database: str) -> None:
        """Remove all there is of a database that was dropped."""
