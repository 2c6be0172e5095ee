"""Protocols that a store may offer: outboxes, write intents, copies, removal of what is expired."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, TypeGuard, runtime_checkable

from mediator.base.immutable import immutable
from mediator.model.change import Change
from mediator.stores.port.records import Fragment, Read, Record
from mediator.stores.port.write import Taken, Write

__all__ = [
    "Bounded",
    "ChangeLog",
    "Claiming",
    "Erasing",
    "FragmentOf",
    "IndexBuilding",
    "Lockable",
    "LogEntry",
    "LogPage",
    "Mirror",
    "PendingChanges",
    "Pipelining",
    "ReadRecords",
    "Reapable",
    "RecordKey",
    "RecordState",
    "SizedWrite",
    "UnrelayedChanges",
    "are_as_new",
    "by_fragment",
    "is_bounded",
    "is_claiming",
    "is_lockable",
    "record_states",
]

FragmentOf: TypeAlias = Callable[[str, str], Fragment | None]
"""Finds the fragment of a class (id of the database, class) on a store, if any."""

ReadRecords: TypeAlias = Callable[[Sequence[Read]], Awaitable[Sequence[Record | None]]]
"""Reads records as `Store.read` does."""


@immutable
class LogEntry:
    """An entry of a change log.

    Attributes:
        position: Where it is; positions of a log rise as texts.
        change: None if its class was dropped.
        size: About how many bytes its images have.
    """

    position: str
    change: Change | None
    size: int


@immutable
class LogPage:
    """Entries of a change log in their order; `is_last`: no more could be read then."""

    entries: Sequence[LogEntry]
    is_last: bool


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
    ) -> LogPage:
        """Return up to `limit` changes beyond a position (None: from the oldest), oldest first.

        A change is returned only when none can still appear before it. Only the last page may have
        no entry; others may have fewer than `limit` if these are large.
        """

    async def oldest(self, log: str) -> str | None:
        """Return the position of the oldest entry that is still there, or None."""

    async def trim(self, log: str, upto: str, keep_s: float) -> int:
        """Remove entries up to a position, but none younger than `keep_s`; return how many."""


@dataclass(frozen=True, slots=True)
class UnrelayedChanges:
    """Changes of one record that its store keeps until they are relayed.

    Attributes:
        changes: The changes in their order, those of one group with rising versions. The feed may
            have the first of them, if a relay ended before it acknowledged them.
        agrees: Whether the changes lead to the present values. If not, the last one was adapted,
            and the record or a store has a defect.
        receipt: What `PendingChanges.acknowledge` needs.
        complete: Whether these are all that the record had; else they are the first.
    """

    fragment: Fragment
    id: str
    changes: Sequence[Change]
    agrees: bool
    receipt: Any = field(repr=False, compare=False)
    complete: bool = True


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


RecordKey: TypeAlias = tuple[Fragment, str]
"""A record: its fragment and the id of its object."""


@immutable
class RecordState:
    """The state of a record, present or not.

    Attributes:
        creation_version: The record's creation version; None if it is absent.
        versions: Versions by group, of a tombstone too.
        intent: The write intent on it; empty: none.
        joint: The last joint write that it records (`Record.joint`).
        redo: What came with the intent (`Lockable.lock`), until that goes; only `record_states`
            returns it, where that is requested.
        size: How many bytes the record has at most, of a `Bounded` store; None: it is not known.
    """

    creation_version: int | None
    versions: Mapping[str, int]
    intent: str
    joint: str = ""
    redo: str = ""
    size: int | None = field(default=None, compare=False)


SizedWrite: TypeAlias = tuple[Write, RecordState]
"""A write under an intent, and the state of its record as `Lockable.lock` has returned it."""


@runtime_checkable
class Pipelining(Protocol):
    """A store whose concurrent calls share round trips as they are: none gains by a wait.

    Any other call takes a connection, and work of the server, for itself.
    """

    pipelines: Literal[True]


@runtime_checkable
class Lockable(Protocol):
    """A store whose records, absent ones too, can carry a write intent.

    An intent is no write: it makes no version and no outbox entry. Writes compare it in the step in
    which they take effect (`Write.intent`). It stays until it is removed, or until the write that
    it announces removes it.

    Keys of one call name different records. Each is treated atomically by itself.
    """

    async def lock(
        self, keys: Sequence[RecordKey], intent: str, redo: str = ""
    ) -> list[RecordState]:
        """Set an intent on each record that has none; the states show which one it has now.

        A record that is fenced against the intent as a token (`Store.fence`) does not take it.

        `redo`: a text that is stored with the intent where that is set by this call, and goes in
        the step in which the intent goes.
        """

    async def unlock(self, keys: Sequence[RecordKey], intent: str, *, joint: bool = False) -> None:
        """Remove an intent from the records that have this one.

        `joint`: its write has happened, without touching these records; those that are present
        record it as `Record.joint`.
        """

    async def record_states(
        self, keys: Sequence[RecordKey], *, redo: bool = False
    ) -> list[RecordState]:
        """Return the states of records; `redo`: with their redo records, which may be long."""


@runtime_checkable
class Claiming(Protocol):
    """A store that keeps claims (`Write.claims`): of one class, no two records have the same.

    A record has its claims from the step in which its write takes effect. They go with a write that
    claims something else, and with its deletion.
    """

    async def reserve(self, writes: Sequence[Write]) -> list[Taken | None]:
        """Reserve what writes claim, for their records, which have the intents of the writes.

        From then on no other record gets these claims, and each record keeps those that it has. A
        reservation ends with the intent: the write that removes it has its claims, and without
        that write the record has what it had before. A record without the intent reserves nothing.

        Returns for each write what another record has, which leaves it without reservations of its
        own; else None.
        """


@runtime_checkable
class Bounded(Protocol):
    """A store that bounds the bytes of a record: a write beyond is `TOO_LARGE`.

    A write under an intent is applied all the same if it can be, as it is committed.
    """

    async def exceeding(self, calls: Sequence[SizedWrite]) -> list[bool]:
        """Return which writes would be too large, before they are committed."""


def is_claiming(store: object) -> TypeGuard[Claiming]:
    # Cached by class, as in `is_queryable`.
    return issubclass(type(store), Claiming)


def is_bounded(store: object) -> TypeGuard[Bounded]:
    # Cached by class, as in `is_queryable`.
    return issubclass(type(store), Bounded)


def is_lockable(store: object) -> TypeGuard[Lockable]:
    # Cached by class, as in `is_queryable`.
    return issubclass(type(store), Lockable)


@runtime_checkable
class Mirror(Protocol):
    """A store that can hold copies of records of other stores, with their versions.

    Copying is no write: it makes no version and no outbox entry. A copy only ever becomes newer: in
    every group of one generation (creation version), or of a later generation.
    """

    async def absorb(self, fragment: Fragment, records: Sequence[Record]) -> list[bool]:
        """Replace copies by newer records, each whole and atomically.

        A record without a group of the fragment leaves it absent. Returns for each record whether
        the copy is now at least as new in every group (or of a later generation, or removed
        later). False: the copy is newer in one group and older in another; the caller reads again.
        """

    async def replace_copies(
        self, fragment: Fragment, found: Sequence[Record], records: Sequence[Record]
    ) -> int:
        """Replace copies by records that may be older, each whole and atomically.

        It repairs a copy that is ahead of its original, because the store of the original has lost
        writes. `found` has for each record the copy as it was found, of which the versions count: a
        copy that has others by now, or is removed, stays as it is. Returns how many were replaced.
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

    `left` are the positions of the records that did not replace their copies; `read` returns the
    live copies, and None for those that were removed since.
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


async def record_states(
    keys: Sequence[RecordKey],
    work: Callable[[Fragment, list[str]], Awaitable[Mapping[str, RecordState]]],
) -> list[RecordState]:
    """Return the states of records; `work` returns those of some records of one fragment."""
    states = {fragment: await work(fragment, ids) for fragment, ids in by_fragment(keys).items()}
    return [states[fragment][id_] for fragment, id_ in keys]


def by_fragment(keys: Sequence[RecordKey]) -> dict[Fragment, list[str]]:
    ids: dict[Fragment, list[str]] = {}
    for fragment, id_ in keys:
        ids.setdefault(fragment, []).append(id_)
    return ids


@runtime_checkable
class Erasing(Protocol):
    """A store that removes what records hold of fields that their fragment has no more."""

    async def erase(
        self, fragment: Fragment, names: Sequence[str], after: str | None, limit: int
    ) -> str | None:
        """Remove fields, given by stored names, from up to `limit` records.

        It is no write: it makes no version and no outbox entry. Returns what leads to the next
        step as `after`; None: all is removed.
        """


@runtime_checkable
class IndexBuilding(Protocol):
    """A store that builds indexes over records before `Store.prepare`, which finds them there.

    It may be done for a change that is never put in force, and beside one that is: so it takes
    nothing away.
    """

    async def build(self, fragment: Fragment, previous: Fragment | None = None) -> None:
        """Build the indexes of a fragment that are not there, while it is read and written."""

    async def built(self, fragment: Fragment) -> float | None:
        """Return how much is built, from 0 to 1; None: it is not known, or nothing is built."""


@runtime_checkable
class Reapable(Protocol):
    """A store whose tombstones, remembered operations and outbox do not expire by themselves."""

    async def reap(self, limit: int) -> int:
        """Remove up to `limit` of those past their retention; return how many were removed.

        It is called again at once if they were as many, and later if they were fewer.
        """
