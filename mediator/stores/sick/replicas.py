"""The versioned backend: every version, and from when each server shows it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from mediator.base.clock import Clock
from mediator.stores.sick.windows import Windows

__all__ = ["Replicas"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class _Version(Generic[V]):
    value: V
    written_s: float
    windows: Mapping[str, float]

    def shows(self, server: str, now_s: float) -> bool:
        return now_s >= self.written_s + self.windows[server]


class Replicas(Generic[K, V]):
    """Virtual servers with one clock. Staleness is decided at reads, and never waited for.

    Args:
        servers: Their names.
        windows: Draws the windows of each write; even the server that takes a write has one.
        clock: Its monotonic time is used.
    """

    def __init__(self, servers: Sequence[str], windows: Windows, clock: Clock) -> None:
        if not servers or len(set(servers)) < len(servers):
            raise ValueError("there is at least one server, and each has a name of its own")
        self.servers = tuple(servers)
        self._windows = windows
        self._clock = clock
        self._versions: dict[K, list[_Version[V]]] = {}

    def write(self, key: K, value: V) -> None:
        """Append a version; of those written at the same instant the later one is the newer."""
        version = _Version(value, self._clock.monotonic(), self._windows.draw(self.servers))
        self._versions.setdefault(key, []).append(version)

    def read(self, key: K, server: str) -> V | None:
        """Return the most recent version that a server shows already; None if it shows none."""
        now = self._clock.monotonic()
        versions = reversed(self._versions.get(key, []))
        return next((it.value for it in versions if it.shows(server, now)), None)

    def newest(self, key: K) -> V | None:
        """Return the most recent version, whether or not a server shows it."""
        versions = self._versions.get(key)
        return versions[-1].value if versions else None

    def __iter__(self) -> Iterator[K]:
        """Iterate over all keys that were ever written."""
        return iter(self._versions)

    def remove(self, keys: Iterable[K]) -> None:
        """Remove keys with all of their versions, everywhere at once."""
        for key in list(keys):
            self._versions.pop(key, None)
