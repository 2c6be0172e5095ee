"""A store that is stale on purpose, as an oracle for measurements of staleness.

SickStore (Wingerath, Friedrich, Gessert, Ritter: "Who Watches the Watchmen? On the Lack of
Validation in NoSQL Benchmarking", BTW 2015).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Generic, Protocol, TypeAlias, TypeVar

from examples.stored_record import StoredRecord, apply_write
from mediator.base.clock import Clock
from mediator.stores.port import Fragment, Read, Record, Status, SystemConfig, Write, WriteResult
from tests.conformance.model_store import ModelStore, visible_record

__all__ = ["Constant", "PerServer", "Replicas", "StaleStore", "Uniform", "Windows"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
Key: TypeAlias = tuple[str, str, str]


class Windows(Protocol):
    """Inconsistency windows: the staleness generator of the paper."""

    def draw(self, servers: Sequence[str]) -> Mapping[str, float]:
        """Return the window of each server for one write, in seconds, none of them negative."""


class Constant:
    """The same window everywhere, always; the only generator of the paper."""

    def __init__(self, seconds: float) -> None:
        self._seconds = _check_window(seconds)

    def draw(self, servers: Sequence[str]) -> Mapping[str, float]:
        return dict.fromkeys(servers, self._seconds)


class Uniform:
    """Windows between two bounds, so that a later write may overtake an earlier one."""

    def __init__(self, min_s: float, max_s: float, seed: int) -> None:
        self._min_s, self._max_s = _check_window(min_s), _check_window(max_s)
        self._random = Random(seed)

    def draw(self, servers: Sequence[str]) -> Mapping[str, float]:
        return {name: self._random.uniform(self._min_s, self._max_s) for name in servers}


class PerServer:
    """A window for each server; none for servers that are not named."""

    def __init__(self, seconds: Mapping[str, float]) -> None:
        self._seconds = {name: _check_window(window) for name, window in seconds.items()}

    def draw(self, servers: Sequence[str]) -> Mapping[str, float]:
        return {name: self._seconds.get(name, 0.0) for name in servers}


def _check_window(seconds: float) -> float:
    if not seconds >= 0:
        raise ValueError("a window must not be negative")
    return seconds


@dataclass(frozen=True, slots=True)
class _Version(Generic[V]):
    value: V
    written_s: float
    windows: Mapping[str, float]


class Replicas(Generic[K, V]):
    """Virtual servers with one clock: all versions, and when each server shows them.

    Reads decide staleness; nothing waits for it.

    Args:
        servers: Their names.
        windows: Draws the windows of each write; even the server that takes a write has one.
        clock: Its monotonic time is used.
    """

    def __init__(self, servers: Sequence[str], windows: Windows, clock: Clock) -> None:
        if not servers or len(set(servers)) < len(servers):
            raise ValueError("at least one server is required, with unique names")
        self.servers = tuple(servers)
        self._windows = windows
        self._clock = clock
        self._versions: dict[K, list[_Version[V]]] = {}

    def write(self, key: K, value: V) -> None:
        """Append a version; of two written at the same instant the later one is newer."""
        version = _Version(value, self._clock.monotonic(), self._windows.draw(self.servers))
        self._versions.setdefault(key, []).append(version)

    def read(self, key: K, server: str) -> V | None:
        """Return the most recent version that a server shows already; None if it shows none."""
        now = self._clock.monotonic()
        versions = reversed(self._versions.get(key, []))
        return next(
            (
                version.value
                for version in versions
                if now >= version.written_s + version.windows[server]
            ),
            None,
        )

    def newest(self, key: K) -> V | None:
        """Return the most recent version, whether or not a server shows it."""
        versions = self._versions.get(key)
        return versions[-1].value if versions else None

    def __iter__(self) -> Iterator[K]:
        """Iterate over all keys that were ever written."""
        return iter(self._versions)

    def remove(self, key: K) -> None:
        """Remove a key with all of its versions, everywhere at once."""
        self._versions.pop(key, None)


class StaleStore(ModelStore):
    """One virtual server of a store that shows writes late.

    The newest version decides on writes, as at a leader, so that conditional writes are atomic;
    reads, scans and counts see what this server shows. Staleness is its only defect: without
    windows it conforms.

    Args:
        replicas: The versions that all of its servers share.
        clock: Its wall time gives the versions.
        server: The server that replies; None: the first one.
    """

    def __init__(
        self, replicas: Replicas[Key, StoredRecord], clock: Clock, server: str | None = None
    ) -> None:
        super().__init__(SystemConfig("stale", "stale", "memory:"))
        self.replicas = replicas
        self.clock = clock
        self.server = replicas.servers[0] if server is None else server
        if self.server not in replicas.servers:
            raise ValueError(f"{server} is none of the servers")

    def at(self, server: str) -> StaleStore:
        """Return the store as another of its servers shows it."""
        return StaleStore(self.replicas, self.clock, server)

    async def time_us(self) -> int:
        return int(self.clock.now() * 1e6)

    async def drop(self, fragment: Fragment) -> None:
        for key in self.keys(fragment):
            self.replicas.remove(key)

    async def read(self, calls: Sequence[Read]) -> list[Record | None]:
        rows = [self.replicas.read(key_of(call.fragment, call.id), self.server) for call in calls]
        return [
            visible_record(row, call.fragment, call.id, call.fields)
            if row is not None and row.is_live
            else None
            for call, row in zip(calls, rows, strict=True)
        ]

    def keys(self, fragment: Fragment) -> list[Key]:
        return [key for key in self.replicas if key[:2] == key_of(fragment, "")[:2]]

    def rows(self, fragment: Fragment) -> dict[str, StoredRecord]:
        rows = {key[2]: self.replicas.read(key, self.server) for key in self.keys(fragment)}
        return {id_: row for id_, row in rows.items() if row is not None}

    def newest(self, fragment: Fragment) -> dict[str, StoredRecord]:
        rows = {key[2]: self.replicas.newest(key) for key in self.keys(fragment)}
        return {id_: row for id_, row in rows.items() if row is not None}

    def row(self, fragment: Fragment, id_: str) -> StoredRecord:
        key = key_of(fragment, id_)
        if self.replicas.newest(key) is None:
            self.replicas.write(key, StoredRecord())
        newest = self.replicas.newest(key)
        assert newest is not None
        return newest

    def apply(self, call: Write, token: str) -> WriteResult:
        newest = self.row(call.fragment, call.id)
        # Servers still show the earlier version, so the write changes a copy.
        version = replace(
            newest, versions=dict(newest.versions), remembered=dict(newest.remembered)
        )
        result = apply_write(version, call, token, int(self.clock.now() * 1e6))
        if result.status is Status.APPLIED and (taken := self.find_taken(call)):
            return WriteResult(Status.TAKEN, taken=taken)
        if result.status is Status.APPLIED:
            self.claim(call)
            self.replicas.write(key_of(call.fragment, call.id), version)
        return result


def key_of(fragment: Fragment, id_: str) -> Key:
    return fragment.database, fragment.class_name, id_
