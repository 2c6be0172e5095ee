"""The port every store implements, and the calls that go through it.

A *record* is what one system holds of one object: the fields placed there, a version for each
cache group, and the birth of the object (the version of its creation). All groups of an object
that live on one system share one record, so that one call reads or writes them atomically.

Every call carries its `Fragment`, which says where it goes and how values are typed. Calls come in
sequences because round trips are what costs: a store sends them as one pipeline or bulk call. Each
call is atomic by itself; calls on the same record take effect in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from mediator.changes.model import Change
from mediator.immutable import immutable
from mediator.operations.operators import Operator, OperatorCall, OperatorFailure
from mediator.query.filters import Filter, Path
from mediator.query.model import Computation, OrderBy, Position
from mediator.schema.tree import Field, MissingType
from mediator.schema.types import FieldType, Value, Values

__all__ = [
    "REMEMBER_S",
    "Access",
    "Aggregating",
    "ChangeLog",
    "Find",
    "Found",
    "Fragment",
    "FragmentOf",
    "Lockable",
    "Logged",
    "Mirror",
    "Ordered",
    "PendingChanges",
    "Pushdown",
    "Queryable",
    "Read",
    "Reapable",
    "Recalled",
    "Record",
    "ServerFacts",
    "Standing",
    "Status",
    "Store",
    "StoreBusy",
    "StoreError",
    "StoreRefused",
    "StoreTimeout",
    "StoreTooCostly",
    "StoreUnavailable",
    "SystemConfig",
    "Unsettled",
    "Write",
    "WriteKind",
    "WriteResult",
]


class StoreError(Exception):
    """A store did not do what was asked; subclasses say whether it may have."""


class StoreUnavailable(StoreError):
    """The store could not be reached, so nothing was done, or the connection broke meanwhile."""


class StoreBusy(StoreUnavailable):
    """The record takes no writes for the moment, so nothing was done; the store is well."""


class StoreTimeout(StoreError):
    """The deadline passed; a write may or may not have taken effect."""


class StoreRefused(StoreError):
    """The store answered with an error that another try will not mend (a defect, a full disk)."""


class StoreTooCostly(StoreError):
    """A search took longer than it was given; the store is well."""


@dataclass(frozen=True, slots=True, eq=False)
class Fragment:
    """What one system holds of one class. Identity is object identity: one per routing model.

    Attributes:
        system: Name of the system.
        database: Name of the database.
        class_name: Name of the class.
        fields: The fields placed here, by name.
        groups: The cache groups placed here: group name to the names of its fields. May be a group
            without fields: the anchor group of a class whose fields all live elsewhere.
        schema_version: Version of the class's schema.
        ttl_s: Seconds that objects of the class live from their creation; None: for ever.
    """

    system: str
    database: str
    class_name: str
    fields: Mapping[str, Field]
    groups: Mapping[str, tuple[str, ...]]
    schema_version: int = 1
    ttl_s: float | None = None


@immutable
class Record:
    """What a store holds of one object.

    Attributes:
        id: The object's id.
        birth: Version of the object's creation; equal in all fragments of one incarnation.
        versions: Version of each group here; strictly increasing, over deletes too.
        values: The fields asked for that are not missing.
    """

    id: str
    birth: int
    versions: Mapping[str, int]
    values: Values


@immutable
class Read:
    """Read one record: all its fields (`fields` None) or some of them."""

    fragment: Fragment
    id: str
    fields: tuple[str, ...] | None = None


class WriteKind(Enum):
    """What a write does to its record.

    CREATE: the record must be absent; it becomes exactly `values`.
    REPLACE: the record becomes exactly `values`, present before or not.
    UPDATE: the record must be present; `values` are set, `unset` removed, `operators` applied.
    DELETE: the record must be present; a tombstone keeps its versions.
    """

    CREATE = auto()
    REPLACE = auto()
    UPDATE = auto()
    DELETE = auto()


@immutable
class Write:
    """One atomic conditional write to one record, its outbox entry included.

    Attributes:
        fragment: Where it goes.
        id: The object's id.
        kind: What it does.
        operation: Unique id of the operation; with the group it makes the change id.
        groups: The groups that get a new version, max(previous + 1, store clock in us). For CREATE,
            REPLACE and DELETE: all groups of the fragment.
        values: Fields set.
        unset: Fields removed (UPDATE).
        operators: Operators applied (UPDATE), each to a different field, none of it in `values`.
        expect: Versions that groups here must have, else the write is not applied (CONFLICT).
        require_present: REPLACE only if the record is there (If-Match: *).
        birth: Set when the anchor lives elsewhere: the birth to record (CREATE, REPLACE), or, for
            DELETE, the version of the anchor's tombstone: a record born later is left alone.
        remember: A fingerprint of the request: the store keeps (operation, fingerprint, result)
            with the write itself for `REMEMBER_S`, and answers a repeated operation with REPLAYED.
        returning: Fields whose values after the write are returned; None: none; (): all.
        mark: The mark that the record must have (`Lockable`), which goes with the write; empty: it
            must have none. Else the write is not applied (LOCKED).
    """

    fragment: Fragment
    id: str
    kind: WriteKind
    operation: str
    groups: tuple[str, ...]
    values: Values = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    operators: tuple[OperatorCall, ...] = ()
    expect: Mapping[str, int] = field(default_factory=dict)
    require_present: bool = False
    birth: int | None = None
    remember: str | None = None
    returning: tuple[str, ...] | None = None
    mark: str = ""


class Status(Enum):
    """What became of a write.

    APPLIED: it took effect now.
    REPLAYED: this operation had taken effect before; the result is the one of then.
    REUSED: the operation id was used before with another fingerprint; nothing done.
    CONFLICT: a version in `expect` differs (`versions` tells the current ones); nothing done.
    MISSING: the record is not there (UPDATE, DELETE, require_present); nothing done.
    EXISTS: the record is there (CREATE); nothing done.
    REFUSED: an operator cannot be applied (`failure`); nothing done.
    FENCED: the record was fenced against the writes of its token; nothing done.
    LOCKED: the record's mark is not the write's (`mark` tells it); nothing done.
    """

    APPLIED = auto()
    REPLAYED = auto()
    REUSED = auto()
    CONFLICT = auto()
    MISSING = auto()
    EXISTS = auto()
    REFUSED = auto()
    FENCED = auto()
    LOCKED = auto()


@immutable
class WriteResult:
    """The answer to a `Write`.

    Attributes:
        status: What became of it.
        created: Whether the record was absent before (CREATE, REPLACE).
        birth: The record's birth; for DELETE the highest version of the tombstone.
        versions: After APPLIED and REPLAYED: all versions of the record; on CONFLICT the current
            ones; otherwise empty.
        values: What `returning` asked for. A replay returns the values of then, if they were asked
            for then.
        failure: With REFUSED.
        mark: With LOCKED: the mark that the record has, empty if none.
    """

    status: Status
    created: bool = False
    birth: int = 0
    versions: Mapping[str, int] = field(default_factory=dict)
    values: Mapping[str, Value] = field(default_factory=dict)
    failure: OperatorFailure | None = None
    mark: str = ""


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What was observed of a server from its own configuration.

    Attributes:
        server: Product name as the server says it, e.g. ``redis``, ``PostgreSQL``.
        version: Its version.
        durability_s: How many seconds of acknowledged writes a crash of the machine may lose; 0 for
            none, None where it cannot be known.
        replicas: Connected replicas, or None where it cannot be known.
        details: Settings that were looked at, by name.
    """

    server: str
    version: str
    durability_s: float | None
    replicas: int | None
    details: Mapping[str, str] = field(default_factory=dict)


REMEMBER_S = 24 * 3600
"""Seconds for which a remembered operation, and a tombstone, is kept at least."""


@dataclass(frozen=True, slots=True)
class SystemConfig:
    """How to reach and use one system.

    Attributes:
        name: Its name, `[a-z][a-z0-9_]{0,62}`.
        kind: ``redis``, ``postgresql`` or ``mongodb``.
        url: Connection URL; may carry a password, never logged.
        durability: ``full``: a write is on disk before it is acknowledged; ``second``: a crash of
            the machine may lose about a second of acknowledged writes; None: as the server is
            configured. A store applies it as far as one of its clients may (and `facts`
            observes what came of it).
        deadline_s: Longest time of one call.
        pool_size: Connections at most; a store may have half as many more for searches.
        namespace: Prefix of keys, name of the PostgreSQL schema, or prefix of MongoDB databases.
        partitions: Hash tags that the objects of a class are spread over (Redis); fixed for good.
    """

    name: str
    kind: str
    url: str = field(repr=False)
    durability: Literal["full", "second"] | None = None
    deadline_s: float = 2.0
    pool_size: int = 16
    namespace: str = "portolan"
    partitions: int = 4


class Store(Protocol):
    """One system, opened. Raises `StoreError` and nothing else from every call."""

    config: SystemConfig

    async def open(self) -> None:
        """Connect; raises `StoreUnavailable` if the server does not answer."""

    async def close(self) -> None:
        """Release every connection."""

    async def ping(self) -> None:
        """Return if the server answers."""

    async def facts(self) -> ServerFacts:
        """Observe the server's version and configuration."""

    def supports(self, operator: Operator, type_: FieldType) -> bool:
        """Whether the store applies the operator to the type exactly and atomically."""

    async def prepare(self, fragment: Fragment, previous: Fragment | None = None) -> None:
        """Make tables, columns and indexes for the fragment; idempotent, keeps existing data."""

    async def drop(self, fragment: Fragment) -> None:
        """Remove the fragment with all its data."""

    async def read(self, calls: Sequence[Read]) -> list[Record | None]:
        """Read records; None for those that are not there."""

    async def write(self, calls: Sequence[Write], token: str = "") -> list[WriteResult]:
        """Apply writes, each atomically with its outbox entry; the results in the same order.

        `token` names these writes to `fence`; without one they are not checked, and cost nothing.
        """

    async def fence(self, fragment: Fragment, id_: str, token: str) -> Mapping[str, int]:
        """Return the versions that stand of a record, and of a token's writes have no more stand.

        Once this returns, no write that carries the token takes effect on the record any more, even
        one that lies on its way to the server; what has taken effect is among the versions. They
        are by group and may be those of a tombstone; empty: nothing is known of the object. It
        holds for `REMEMBER_S` at least, and goes by no clock but the server's own.
        """

    async def recall(self, fragment: Fragment, id_: str, operation: str) -> Recalled | None:
        """Return what is remembered of an operation on an object."""

    async def scan(
        self,
        fragment: Fragment,
        after: str | None,
        limit: int,
        fields: tuple[str, ...] | None = None,
    ) -> list[Record]:
        """Read up to `limit` records in the order of their ids, beyond `after`."""

    async def count(self, fragment: Fragment) -> int:
        """Count the objects of the class that are there."""


@dataclass(frozen=True, slots=True)
class Recalled:
    """A remembered operation: the fingerprint it came with, and its result then."""

    fingerprint: str
    result: WriteResult


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


@runtime_checkable
class Ordered(Protocol):
    """A store that reads a class in the order of an indexed field."""

    async def ordered(
        self,
        fragment: Fragment,
        field_name: str,
        *,
        descending: bool,
        limit: int,
        after: tuple[Value | MissingType, str] | None = None,
        fields: tuple[str, ...] | None = None,
    ) -> list[Record]:
        """Read records ordered by (field, id), beyond `after`.

        Ascending: missing, nulls, values. Descending is the exact reverse, ids included. `after` is
        the (value or MISSING, id) of the last record seen.
        """


@runtime_checkable
class Reapable(Protocol):
    """A store whose tombstones, remembered operations and outbox do not expire by themselves."""

    async def reap(self, limit: int) -> int:
        """Remove up to `limit` of those past their retention; return how many were removed."""


class Access(StrEnum):
    """How a store finds the records of a search, cheapest first."""

    KEYS = "keys"
    INDEX = "index"
    SERVER_SCAN = "server scan"
    CLIENT_SCAN = "client scan"


@dataclass(frozen=True, slots=True)
class Pushdown:
    """What a store would do of a search.

    Attributes:
        pushed: The part of the filter that it applies exactly; None: nothing.
        residual: The rest, to be evaluated on the records it returns; the filter is equivalent to
            both together.
        access: How it finds the records. CLIENT_SCAN: it can only send them all.
        ordered: Whether it returns them in the order asked for, so that `Find.after` may be used.
    """

    pushed: Filter | None
    residual: Filter | None
    access: Access
    ordered: bool


@dataclass(frozen=True, slots=True)
class Find:
    """A search among the live records of a fragment, page by page.

    Attributes:
        fragment: Where to look.
        filter: A filter that `Queryable.pushdown` has returned as pushed; None: all records.
        order: An order for which it has said `ordered`; empty: as the store likes.
        limit: Records per page at most.
        after: Return only records beyond this position of `order`; first page only.
        resume: `Found.resume` of the page before.
        fields: Fields to return; None: all.
        deadline_s: Time for this page; beyond it `StoreTooCostly` is raised.
    """

    fragment: Fragment
    filter: Filter | None
    order: tuple[OrderBy, ...]
    limit: int
    after: Position | None = None
    resume: Any = None
    fields: tuple[str, ...] | None = None
    deadline_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Found:
    """A page of a search; `resume` leads to the next one and is None on the last."""

    records: Sequence[Record]
    resume: Any = None


@runtime_checkable
class Queryable(Protocol):
    """A store that searches by filters. What it cannot apply exactly, it leaves to the caller."""

    def pushdown(
        self, fragment: Fragment, filter_: Filter | None, order: tuple[OrderBy, ...]
    ) -> Pushdown:
        """Say what would be done of a search; pure, without asking the server.

        The filter's and the order's paths begin with fields of the fragment, or are `ID`. An empty
        order means the order of ids here.
        """

    async def find(self, find: Find) -> Found:
        """Return a page of records. Raises `StoreTooCostly` beyond the deadline."""


@runtime_checkable
class Aggregating(Protocol):
    """A store that groups and computes."""

    def aggregates(
        self,
        fragment: Fragment,
        filter_: Filter | None,
        group: tuple[Path, ...],
        compute: Mapping[str, Computation],
    ) -> bool:
        """Whether it applies the whole filter and computes all this exactly (floats to 1e-9)."""

    async def aggregate(
        self,
        fragment: Fragment,
        filter_: Filter | None,
        group: tuple[Path, ...],
        compute: Mapping[str, Computation],
        *,
        limit: int,
        deadline_s: float,
    ) -> list[tuple[tuple[Value | MissingType, ...], Mapping[str, Value]]]:
        """Return up to `limit` groups, in no order, each with its values and what was computed.

        A sum of integers may be beyond 64 bits; an average is a float (of decimals, a Decimal).
        Raises `StoreTooCostly` beyond the deadline.
        """


FragmentOf: TypeAlias = Callable[[str, str], Fragment | None]
"""Finds the fragment of a class (database, class) on the store that asks; None: there is none."""


@immutable
class Logged:
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
    ) -> list[Logged]:
        """Return up to `limit` changes beyond a position (None: from the oldest), oldest first.

        A change is returned only when none can still appear before it.
        """

    async def oldest(self, log: str) -> str | None:
        """Return the position of the oldest entry that is still there, or None."""

    async def trim(self, log: str, upto: str, keep_s: float) -> int:
        """Remove entries up to a position, but none younger than `keep_s`; return how many."""


@dataclass(frozen=True, slots=True)
class Unsettled:
    """Changes of one record that its store keeps until the feed has them.

    Attributes:
        fragment: The fragment.
        id: The object's id.
        changes: The changes in their order, those of one group with rising versions. The feed may
            have the first of them already, if a relay died before it could settle them.
        agrees: Whether the changes lead to the values that are there. If not, the last one was
            made to, and something is wrong with the record or with us.
        receipt: What `PendingChanges.settle` needs.
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

    def written(self, limit: int) -> list[tuple[str, str, str]]:
        """Take (database, class, id) of up to `limit` records that this process has written.

        Each is told once for all that was written to it so far. It is a hint only: what another
        process has written, or this one before it died, is found by `sweep`.
        """

    async def pending(self, fragment: Fragment, ids: Sequence[str]) -> list[Unsettled]:
        """Read the changes that wait in some records; records without any are left out.

        Of a record with very many, the first are returned, and `written` tells it again.
        """

    async def sweep(self, fragment: Fragment, after: str | None, limit: int) -> list[str]:
        """Find up to `limit` records in which changes wait, in the order of their ids."""

    async def settle(self, done: Sequence[Unsettled]) -> None:
        """Remove changes that the feed has, unless somebody else has done so."""


@runtime_checkable
class Mirror(Protocol):
    """A store that can hold copies of records that live elsewhere, with the versions they have.

    Copies are no writes: they get no versions of this store, and nothing is said in its outbox. A
    copy only ever becomes newer: of one incarnation (birth) in every group, or a later incarnation.
    """

    async def absorb(
        self, fragment: Fragment, records: Sequence[Record], *, force: bool = False
    ) -> list[bool]:
        """Make copies what the records say, as whole records, each atomically.

        `force` takes them in whatever is held: to make good a copy that is ahead of its original,
        because the original's store has lost writes.

        A record without a group of the fragment leaves it absent. Returns for each record whether
        the copy is now at least as new in every group (or of a later incarnation, or forgotten
        later). False: the copy is newer in one group and older in another; the caller reads again.
        """

    async def forget(self, fragment: Fragment, dead: Sequence[tuple[str, int]]) -> None:
        """Remove the copies of objects, given by id and the highest version of their tombstone.

        Copies born later stay. What was forgotten is remembered for `REMEMBER_S` at least, so that
        a copy of the dead incarnation that comes late is not taken in.
        """
