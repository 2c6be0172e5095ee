"""The `Store` of virtual replicas: one of its servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from mediator.base.clock import Clock
from mediator.model.operators import APPLICABLE, Operator
from mediator.schema.types import FieldType
from mediator.stores.port import (
    Fragment,
    Read,
    Record,
    RememberedOperation,
    ServerFacts,
    SystemConfig,
    Write,
    WriteResult,
)
from mediator.stores.sick.replicas import Replicas
from mediator.stores.sick.rows import NOTHING, Row, apply_write, projected

__all__ = ["SickStore"]

_Key: TypeAlias = tuple[str, str, str]


class SickStore:
    """One virtual server of a store that shows writes late.

    Writes are decided on by the newest version, as at a leader, so that conditional writes are
    atomic; reads, scans and counts see what this server shows. Staleness is all that is wrong with
    it: without windows it conforms.

    Args:
        replicas: What all of its servers share.
        clock: Its wall time makes versions.
        server: The server that answers; None: the first one.
        config: Its name.
        fenced: Records with the tokens whose writes they refuse; shared by its servers.
    """

    def __init__(
        self,
        replicas: Replicas[_Key, Row],
        clock: Clock,
        server: str | None = None,
        config: SystemConfig | None = None,
        fenced: set[tuple[_Key, str]] | None = None,
    ) -> None:
        self.config = config or SystemConfig("sick", "sick", "memory:")
        self._replicas = replicas
        self._clock = clock
        self._fenced = set() if fenced is None else fenced
        self._server = replicas.servers[0] if server is None else server
        if self._server not in replicas.servers:
            raise ValueError(f"{server} is none of the servers")

    def at(self, server: str) -> SickStore:
        """Return the same store as another one of its servers shows it."""
        return SickStore(self._replicas, self._clock, server, self.config, self._fenced)

    async def open(self) -> None:
        """Do nothing: there is no connection."""

    async def close(self) -> None:
        """Do nothing: there is no connection."""

    async def ping(self) -> None:
        """Return: it is always available."""

    async def time_us(self) -> int:
        """Return what the virtual servers' clock shows."""
        return int(self._clock.now() * 1e6)

    async def facts(self) -> ServerFacts:
        """Return that it loses all data with its process."""
        return ServerFacts("sick", "1", None, len(self._replicas.servers))

    def supports(self, operator: Operator, type_: FieldType) -> bool:
        """Whether an operator can be applied to a type at all: then it is."""
        return type_ in APPLICABLE[operator]

    async def prepare(self, fragment: Fragment, previous: Fragment | None = None) -> None:
        """Do nothing: there are no tables or indexes."""

    async def drop(self, fragment: Fragment) -> None:
        """Remove the fragment with all its data, everywhere at once."""
        self._replicas.remove(self._keys(fragment))

    async def read(self, calls: Sequence[Read]) -> list[Record | None]:
        """Read records as this server shows them."""
        return [self._read(_key(call.fragment, call.id), call.fields) for call in calls]

    async def write(self, calls: Sequence[Write], token: str = "") -> list[WriteResult]:
        """Apply writes; they are seen when their windows have passed."""
        return [self._write(call, token) for call in calls]

    async def fence(self, fragment: Fragment, id_: str, token: str) -> Mapping[str, int]:
        """Refuse a record the writes of a token from now on; return the leader's versions."""
        key = _key(fragment, id_)
        self._fenced.add((key, token))
        return (self._replicas.newest(key) or NOTHING).record.versions

    async def recall(
        self, fragment: Fragment, id_: str, operation: str
    ) -> RememberedOperation | None:
        """Return what is remembered of an operation, at the leader."""
        row = self._replicas.newest(_key(fragment, id_)) or NOTHING
        return row.remembered.get(operation)

    async def scan(
        self,
        fragment: Fragment,
        after: str | None,
        limit: int,
        fields: tuple[str, ...] | None = None,
    ) -> list[Record]:
        """Read records that this server shows, in the order of their ids."""
        start = (after or "").encode()
        keys = sorted((k for k in self._keys(fragment) if k[2].encode() > start), key=_id_bytes)
        records = (self._read(key, fields) for key in keys)
        return [record for record in records if record is not None][:limit]

    async def count(self, fragment: Fragment) -> int:
        """Count the objects that this server shows."""
        return sum(self._read(key, ()) is not None for key in self._keys(fragment))

    def _keys(self, fragment: Fragment) -> list[_Key]:
        class_key = (fragment.database, fragment.class_name)
        return [key for key in self._replicas if key[:2] == class_key]

    def _read(self, key: _Key, fields: tuple[str, ...] | None) -> Record | None:
        row = self._replicas.read(key, self._server) or NOTHING
        return projected(row.record, fields) if row.is_live else None

    def _write(self, call: Write, token: str) -> WriteResult:
        key = _key(call.fragment, call.id)
        row = self._replicas.newest(key) or NOTHING
        result, new = apply_write(call, row, self._clock.now(), fenced=(key, token) in self._fenced)
        if new is not None:
            self._replicas.write(key, new)
        return result


def _key(fragment: Fragment, id_: str) -> _Key:
    return fragment.database, fragment.class_name, id_


def _id_bytes(key: _Key) -> bytes:
    return key[2].encode()
