"""The port every store implements, and the calls that go through it.

A *record* is what one system holds of one object: the fields placed there, a version for each
cache group, and the creation version of the object (the version of its creation). All groups of an
object that live on one system share one record, so that one call reads or writes them atomically.

Every call carries its `Fragment`, which says where it goes and how values are typed. Calls come in
sequences because round trips are what costs: a store sends them as one pipeline or bulk call. Each
call is atomic by itself; calls on the same record take effect in their order.
"""

from __future__ import annotations

from mediator.stores.port.errors import (
    StoreBusy,
    StoreError,
    StoreRefused,
    StoreTimeout,
    StoreTooCostly,
    StoreUnavailable,
)
from mediator.stores.port.mirror import Mirror
from mediator.stores.port.outbox import ChangeLog, FragmentOf, Logged, PendingChanges, Unsettled
from mediator.stores.port.records import Fragment, Read, Record
from mediator.stores.port.search import (
    Access,
    Aggregating,
    Documents,
    Find,
    Found,
    Joining,
    Ordered,
    Pushdown,
    Queryable,
    SemiJoin,
    SemiJoining,
    ShownJoin,
    is_joining,
    is_queryable,
    is_semi_joining,
)
from mediator.stores.port.store import (
    REMEMBER_S,
    Reapable,
    Recalled,
    ServerFacts,
    Store,
    SystemConfig,
)
from mediator.stores.port.transactions import Lockable, RecordKey, Standing, is_lockable
from mediator.stores.port.write import Status, Write, WriteKind, WriteResult

__all__ = [
    "REMEMBER_S",
    "Access",
    "Aggregating",
    "ChangeLog",
    "Documents",
    "Find",
    "Found",
    "Fragment",
    "FragmentOf",
    "Joining",
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
    "RecordKey",
    "SemiJoin",
    "SemiJoining",
    "ServerFacts",
    "ShownJoin",
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
    "is_joining",
    "is_lockable",
    "is_queryable",
    "is_semi_joining",
]
