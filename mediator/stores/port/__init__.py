"""The port that every store implements: protocols, calls and results.

A *record* is what one system holds of one object: the fields placed there, a version for each
cache group, and the creation version of the object (the version of its creation). All groups of an
object that are on one system share one record, so that one call reads or writes them atomically.

Every call carries its `Fragment`, which says where it goes and how values are typed. Calls come in
sequences because round trips are what costs: a store sends them as one pipeline or bulk call. Each
call is atomic by itself; calls on the same record take effect in their order.
"""

from __future__ import annotations

from mediator.stores.port.optional import (
    ChangeLog,
    Erasing,
    FragmentOf,
    Lockable,
    LogEntry,
    Mirror,
    PendingChanges,
    ReadRecords,
    Reapable,
    RecordKey,
    RecordState,
    UnrelayedChanges,
    are_as_new,
    by_fragment,
    is_lockable,
    record_states,
)
from mediator.stores.port.records import Fragment, Read, Record
from mediator.stores.port.search import (
    AccessPath,
    Aggregating,
    ComputedGroup,
    DocumentPage,
    Estimating,
    Joining,
    Pushdown,
    Queryable,
    SearchPage,
    SearchRequest,
    SemiJoin,
    SemiJoining,
    ShownJoin,
    group_of_all,
    is_joining,
    is_queryable,
    is_semi_joining,
    only_level,
)
from mediator.stores.port.store import (
    RETENTION_S,
    RememberedOperation,
    ServerFacts,
    Store,
    StoreBusy,
    StoreError,
    StoreRefused,
    StoreTimeout,
    StoreTooCostly,
    StoreUnavailable,
    SystemConfig,
)
from mediator.stores.port.write import Status, Write, WriteKind, WriteResult

__all__ = [
    "RETENTION_S",
    "AccessPath",
    "Aggregating",
    "ChangeLog",
    "ComputedGroup",
    "DocumentPage",
    "Erasing",
    "Estimating",
    "Fragment",
    "FragmentOf",
    "Joining",
    "Lockable",
    "LogEntry",
    "Mirror",
    "PendingChanges",
    "Pushdown",
    "Queryable",
    "Read",
    "ReadRecords",
    "Reapable",
    "Record",
    "RecordKey",
    "RecordState",
    "RememberedOperation",
    "SearchPage",
    "SearchRequest",
    "SemiJoin",
    "SemiJoining",
    "ServerFacts",
    "ShownJoin",
    "Status",
    "Store",
    "StoreBusy",
    "StoreError",
    "StoreRefused",
    "StoreTimeout",
    "StoreTooCostly",
    "StoreUnavailable",
    "SystemConfig",
    "UnrelayedChanges",
    "Write",
    "WriteKind",
    "WriteResult",
    "are_as_new",
    "by_fragment",
    "group_of_all",
    "is_joining",
    "is_lockable",
    "is_queryable",
    "is_semi_joining",
    "only_level",
    "record_states",
]
