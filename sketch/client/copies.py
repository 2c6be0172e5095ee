"""The client's own cache: copies of answers, the least recently used of which give way."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from sketch.client.statistics import Statistics

__all__ = ["Copies", "Copy"]

_OVERHEAD = 400
"""What a copy takes in memory beside its texts, roughly (bytes)."""


@dataclass(frozen=True, slots=True)
class Copy:
    """An answer that was received, or the mark of one that must not be kept.

    Attributes:
        status: 200, or 404 for an object that is not there.
        etag: Its tag, if it has one.
        body: As received; empty where the answer must not be kept.
        since: A time, by the client's clock, at which the answer was not outdated yet.
        expires_us: End of its life by the sketch's clock (microseconds); 0: not usable as it is.
        epoch: Of the filters it was covered by.
    """

    status: int
    etag: str | None
    body: bytes
    since: float
    expires_us: int
    epoch: int


class Copies:
    """Copies by address, within a number of bytes.

    Args:
        limit_bytes: What they may take together.
        statistics: Where to count.
    """

    def __init__(self, limit_bytes: int, statistics: Statistics) -> None:
        self._limit = limit_bytes
        self._statistics = statistics
        self._copies: OrderedDict[str, Copy] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._copies)

    def get(self, address: str) -> Copy | None:
        """Return the copy of a resource and count it as used."""
        copy = self._copies.get(address)
        if copy is not None:
            self._copies.move_to_end(address)
        return copy

    def put(self, address: str, copy: Copy) -> None:
        """Keep a copy, unless there is a newer one: answers overtake each other."""
        old = self._copies.get(address)
        if old is not None and (old.epoch, old.since) > (copy.epoch, copy.since):
            return
        self._drop(address)
        size = _size(address, copy)
        if size > self._limit:
            return
        self._copies[address] = copy
        self.bytes += size
        while self.bytes > self._limit:
            self._drop(next(iter(self._copies)))
            self._statistics.evictions += 1

    def _drop(self, address: str) -> None:
        copy = self._copies.pop(address, None)
        if copy is not None:
            self.bytes -= _size(address, copy)


def _size(address: str, copy: Copy) -> int:
    return _OVERHEAD + len(address) + len(copy.body) + len(copy.etag or "")
