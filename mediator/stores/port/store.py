"""The `Store` protocol, its errors, and how a store is configured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from mediator.base.errors import PortolanError
from mediator.model.operators import Operator
from mediator.schema.types import FieldType
from mediator.stores.port.records import Fragment, Read, Record
from mediator.stores.port.write import Write, WriteResult

__all__ = [
    "REPEATABLE_S",
    "RETENTION_S",
    "RememberedOperation",
    "ServerFacts",
    "Store",
    "StoreBusy",
    "StoreError",
    "StoreRefused",
    "StoreTimeout",
    "StoreTooCostly",
    "StoreUnavailable",
    "SystemConfig",
]


RETENTION_S = 24 * 3600
"""How long remembered operations and tombstones are kept at least, in seconds."""

REPEATABLE_S = RETENTION_S - 3600
"""How long after they were first sent writes can be repeated under their operation ids, in seconds:
the margin is for the time that repeating takes."""


class StoreError(PortolanError):
    """A call failed; subclasses say whether it may have taken effect."""


class StoreUnavailable(StoreError):
    """The store could not be reached, or a read lost its connection; nothing was written."""


class StoreBusy(StoreUnavailable):
    """A record takes no writes at the moment; other records of the call may have been written."""


class StoreTimeout(StoreError):
    """The deadline passed, or a write lost its connection; it may or may not have taken effect."""


class StoreRefused(StoreError):
    """The store replied with an error that a retry does not cure (a defect, a full disk)."""


class StoreTooCostly(StoreError):
    """A search exceeded its deadline; the store is healthy."""


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """The version and configuration that a server reports.

    Attributes:
        server: Product name as the server reports it, e.g. ``redis``, ``PostgreSQL``.
        version: Its version.
        durability_s: How many seconds of acknowledged writes a crash of the machine can lose; 0:
            none; None: unknown.
        replicas: Number of connected replicas; None: unknown.
        details: Settings that were inspected, by name.
    """

    server: str
    version: str
    durability_s: float | None
    replicas: int | None
    details: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SystemConfig:
    """How to reach and use one system.

    Attributes:
        name: Its name, `[a-z][a-z0-9_]{0,62}`.
        kind: ``redis``, ``postgresql`` or ``mongodb``.
        url: Connection URL; can contain a password; never logged.
        durability: ``full``: a write is on disk before it is acknowledged; ``second``: a crash of
            the machine can lose about a second of acknowledged writes; None: as the server is
            configured. A store applies it as far as a client is permitted to (`facts` reports the
            result).
        deadline_s: Timeout of one call.
        pool_size: Maximum number of connections; a store can add half as many for searches.
        namespace: Prefix of keys, name of the PostgreSQL schema, or prefix of MongoDB databases.
        partitions: Number of hash tags over which the objects of a class are spread (Redis); fixed
            for good.
    """

    name: str
    kind: str
    url: str = field(repr=False)
    durability: Literal["full", "second"] | None = None
    deadline_s: float = 2.0
    pool_size: int = 16
    namespace: str = "portolan"
    partitions: int = 4


@dataclass(frozen=True, slots=True)
class RememberedOperation:
    """The fingerprint of an operation, and the result of its first execution."""

    fingerprint: str
    result: WriteResult


class Store(Protocol):
    """One system, opened. Raises `StoreError` and nothing else from every call."""

    config: SystemConfig

    async def open(self) -> None:
        """Connect; raises `StoreUnavailable` if the server does not reply."""

    async def close(self) -> None:
        """Release every connection."""

    async def ping(self) -> None:
        """Return if the server replies."""

    async def time_us(self) -> int:
        """Return the clock from which versions are taken, in microseconds, rounded down."""

    async def facts(self) -> ServerFacts:
        """Query the server's version and configuration."""

    def supports(self, operator: Operator, type_: FieldType) -> bool:
        """Whether the store applies the operator to the type exactly and atomically."""

    async def prepare(self, fragment: Fragment, previous: Fragment | None = None) -> None:
        """Create tables, columns and indexes for the fragment; idempotent, keeps existing data.

        `previous` is the fragment as last prepared; searches of it keep their results.
        """

    async def drop(self, fragment: Fragment) -> None:
        """Remove the fragment with all its data."""

    async def read(self, calls: Sequence[Read]) -> list[Record | None]:
        """Read records; None for absent records."""

    async def write(self, calls: Sequence[Write], token: str = "") -> list[WriteResult]:
        """Apply writes, each atomically with its outbox entry; return the results in order.

        `fence` refers to these writes by `token`; without a token there is no check and no cost.
        """

    async def fence(self, fragment: Fragment, id_: str, token: str) -> Mapping[str, int]:
        """Fence a record against the writes of a token, and return its versions.

        Once this returns, no write with the token takes effect on the record any more, even one in
        flight to the server; the versions include all writes that took effect. They are by group
        and can be those of a tombstone; empty: the object is unknown. A fence holds for
        `RETENTION_S` at least, by the server's clock.
        """

    async def recall(
        self, fragment: Fragment, id_: str, operation: str
    ) -> RememberedOperation | None:
        """Return a remembered operation on an object, or None."""

    async def scan(
        self,
        fragment: Fragment,
        after: str | None,
        limit: int,
        fields: tuple[str, ...] | None = None,
    ) -> list[Record]:
        """Read up to `limit` records in the order of their ids, beyond `after`."""

    async def count(self, fragment: Fragment) -> int:
        """Count the live objects of the class."""
