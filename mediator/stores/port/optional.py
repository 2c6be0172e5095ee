"""Optional protocols of stores: outboxes, write intents, copies, removal of expired entries."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, TypeGuard, runtime_checkable

from mediator.base.immutable import immutable
from mediator.model.change import Change
from mediator.stores.port.records import Fragment, Read, Record
from mediator.stores.port.write import TakenClaim, Write

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
"""Finds a store's fragment of a class (id of the database, class), if any."""

ReadRecords: TypeAlias = Callable[[Sequence[Read]], Awaitable[Sequence[Record | None]]]
"""Reads records like `Store.read`."""


@immutable
class LogEntry:
    """An entry of a change log.

    Attributes:
        position: Its position; positions of a log sort as strings.
        change: None if its class was dropped.
        size: Approximate size of its images in bytes.
    """

    position: str
    change: Change | None
    size: int


@immutable
class LogPage:
    """Entries of a change log in order; `is_last`: no more were readable at the time."""

    entries: Sequence[LogEntry]
    is_last: bool


@runtime_checkable
class ChangeLog(Protocol):
    """A store whose outbox is one or more logs, each in the order in which writes took effect.

    Writes to one record are always in the same log. Entries stay readable until they are trimmed.
    """

    def logs(self) -> Sequence[str]:
        """Name the logs."""

    async def changes(
        self, log: str, after: str | None, limit: int, fragment_of: FragmentOf
    ) -> LogPage:
        """Return up to `limit` changes beyond a position (None: from the oldest), oldest first.

        A change is returned only when none can still appear before it. Only the last page can be
        empty; pages of large entries can have fewer than `limit`.
        """

    async def oldest(self, log: str) -> str | None:
        """Return the position of the oldest remaining entry, or None."""

    async def trim(self, log: str, upto: str, keep_s: float) -> int:
        """Remove entries up to a position, but none younger than `keep_s`; return the number."""


@dataclass(frozen=True, slots=True)
class UnrelayedChanges:
    """Changes of one record that its store keeps until they are relayed.

    Attributes:
        changes: The changes in order, with rising versions within a group. The feed can have the
            first of them already, if a relay ended before it acknowledged them.
        agrees: Whether the changes lead to the present values. If not, the last one was adapted,
            and the record or a store has a defect.
        receipt: The receipt for `PendingChanges.acknowledge`.
        complete: Whether these are all changes of the record; else they are the first.
    """

    fragment: Fragment
    id: str
    changes: Sequence[Change]
    agrees: bool
    receipt: Any = field(repr=False, compare=False)
    complete: bool = True


@runtime_checkable
class PendingChanges(Protocol):
    """A store that keeps each record's outbox in the record.

    No change is dropped: a record with too many takes no more writes (`StoreBusy`). Changes are
    removed from the front only, so a read returns all that the feed can lack, in order.
    """

    @property
    def sweep_every_s(self) -> float:
        """The interval of `sweep` in seconds."""

    def take_written(self, limit: int) -> list[tuple[str, str, str]]:
        """Take up to `limit` records that this process wrote: id of the database, class, id.

        Each is returned once for all its writes so far. It is only a hint: `sweep` finds the writes
        of other processes, and of this one before it ended.
        """

    async def pending(self, fragment: Fragment, ids: Sequence[str]) -> list[UnrelayedChanges]:
        """Read the changes of some records; records without changes are left out.

        Of a record with very many, the first are returned, and `take_written` returns it again.
        """

    async def sweep(self, fragment: Fragment, after: str | None, limit: int) -> list[str]:
        """Find up to `limit` records with changes, in the order of their ids."""

    async def acknowledge(self, relayed: Sequence[UnrelayedChanges]) -> None:
        """Remove relayed changes, unless another relay has removed them."""


RecordKey: TypeAlias = tuple[Fragment, str]
"""A record: its fragment and the id of its object."""


@immutable
class RecordState:
    """The state of a record, present or not.

    Attributes:
        creation_version: The record's creation version; None if it is absent.
        versions: Versions by group, also of a tombstone.
        intent: The write intent on it; empty: none.
        joint: The last joint write that it records (`Record.joint`).
        redo: The redo record of the intent (`Lockable.lock`); only `record_states` returns it, on
            request.
        size: Upper bound of the record's size in bytes, in a `Bounded` store; None: unknown.
    """

    creation_version: int | None
    versions: Mapping[str, int]
    intent: str
    joint: str = ""
    redo: str = ""
    size: int | None = field(default=None, compare=False)


SizedWrite: TypeAlias = tuple[Write, RecordState]
"""A write under an intent, and the state of its record as `Lockable.lock` returned it."""


@runtime_checkable
class Pipelining(Protocol):
    """A store whose concurrent calls share round trips anyway: waiting for a batch gains nothing.

    In other stores each call takes a connection and work of the server.
    """

    pipelines: Literal[True]


@runtime_checkable
class Lockable(Protocol):
    """A store whose records, present or absent, can carry a write intent.

    Setting an intent makes no version and no outbox entry. Writes compare it in the step in which
    they take effect (`Write.intent`). It stays until `unlock` or the announced write removes it.

    Keys of one call name different records. Each record is treated atomically.
    """

    async def lock(
        self, keys: Sequence[RecordKey], intent: str, redo: str = ""
    ) -> list[RecordState]:
        """Set an intent on each record that has none; the states show each record's intent.

        A record that is fenced against the intent as a token (`Store.fence`) does not take it.

        `redo`: a text that is stored with each intent that this call sets, and removed in the same
        step as the intent.
        """

    async def unlock(self, keys: Sequence[RecordKey], intent: str, *, joint: bool = False) -> None:
        """Remove this intent from the records that have it.

        `joint`: its write was applied without touching these records; those that are present
        record it as `Record.joint`.
        """

    async def record_states(
        self, keys: Sequence[RecordKey], *, redo: bool = False
    ) -> list[RecordState]:
        """Return the states of records; `redo`: with their redo records, which can be long."""


@runtime_checkable
class Claiming(Protocol):
    """A store that keeps claims (`Write.claims`): no two records of a class have the same claim.

    A record gets its claims in the step in which its write takes effect. A write with other claims,
    or the record's deletion, releases them.
    """

    async def reserve(self, writes: Sequence[Write]) -> list[TakenClaim | None]:
        """Reserve the claims of writes for their records, which carry the intents of the writes.

        From then on no other record gets these claims, and each record keeps its present claims. A
        reservation ends with the intent: if the write removes it, the record gets the claims;
        otherwise the record keeps its earlier ones. A record without the intent reserves nothing.
        An intent reserves a record for one write; a repeated call is a retry with the same claims.

        Returns for each write the claim that another record has, in which case the write reserves
        nothing; else None.
        """


@runtime_checkable
class Bounded(Protocol):
    """A store that bounds the size of a record: a write beyond the bound is `TOO_LARGE`.

    A write under an intent is committed, so it is applied regardless if possible.
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

    Copying makes no version and no outbox entry. A copy only ever becomes newer: in every group of
    one generation (creation version), or of a later generation.
    """

    async def absorb(self, fragment: Fragment, records: Sequence[Record]) -> list[bool]:
        """Replace copies by newer records, each completely and atomically.

        A group that the record lacks is absent from the copy. Returns for each record whether the
        copy is now at least as new in every group (or of a later generation, or removed later).
        False: the copy is newer in one group and older in another; the caller reads again.
        """

    async def replace_copies(
        self, fragment: Fragment, copies: Sequence[Record], records: Sequence[Record]
    ) -> int:
        """Replace copies by records that can be older, each completely and atomically.

        It repairs copies that are ahead of their originals, because the original's store has lost
        writes. `copies` has the copy of each record as it was read: a copy that has other versions
        by now, or is removed, stays unchanged. Returns how many were replaced.
        """

    async def forget(self, fragment: Fragment, tombstones: Sequence[tuple[str, int]]) -> None:
        """Remove the copies of objects, by id and the highest version of their tombstone.

        Copies of later generations stay. The removal is remembered for `RETENTION_S` at least, so
        that a late copy of the deleted generation is refused.
        """


async def are_as_new(
    fragment: Fragment,
    records: Sequence[Record],
    unreplaced: Sequence[int],
    read: ReadRecords,
) -> list[bool]:
    """Return the result of `Mirror.absorb`.

    `unreplaced` are the positions of the records that did not replace their copies; `read` returns
    the live copies, and None for those removed since.
    """
    copies = (
        await read([Read(fragment, records[at].id, ()) for at in unreplaced]) if unreplaced else ()
    )
    pairs = zip(unreplaced, copies, strict=True)
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
    """Return the states of records; `work` returns the states of records of one fragment."""
    states = {fragment: await work(fragment, ids) for fragment, ids in by_fragment(keys).items()}
    return [states[fragment][id_] for fragment, id_ in keys]


def by_fragment(keys: Sequence[RecordKey]) -> dict[Fragment, list[str]]:
    ids: dict[Fragment, list[str]] = {}
    for fragment, id_ in keys:
        ids.setdefault(fragment, []).append(id_)
    return ids


@runtime_checkable
class Erasing(Protocol):
    """A store that can erase from records the values of fields that their fragment has lost."""

    async def erase(
        self, fragment: Fragment, names: Sequence[str], after: str | None, limit: int
    ) -> str | None:
        """Remove fields, given by stored names, from up to `limit` records.

        It makes no version and no outbox entry. Returns the `after` of the next step; None: all is
        removed.
        """


@runtime_checkable
class IndexBuilding(Protocol):
    """A store that builds indexes over existing records ahead of `Store.prepare`.

    The schema change may never be put in force, or another one may be in force meanwhile, so
    building removes nothing.
    """

    async def build(self, fragment: Fragment, previous: Fragment | None = None) -> None:
        """Build the missing indexes of a fragment while it is read and written."""

    async def built(self, fragment: Fragment) -> float | None:
        """Return the progress of a build, from 0 to 1; None: unknown, or no build is running."""


@runtime_checkable
class Reapable(Protocol):
    """A store that must be asked to remove tombstones, remembered operations and outbox entries."""

    async def reap(self, limit: int) -> int:
        """Remove up to `limit` entries past their retention; return how many were removed.

        If that was `limit`, the caller repeats it at once, otherwise later.
        """
