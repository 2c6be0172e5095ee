"""The client's own LRU cache, and the order of versions."""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass, replace

from sketch.client.statistics import Statistics

__all__ = ["NO_TTL", "Copies", "Copy", "is_newer"]

NO_TTL = 1
"""The expiry of a copy without a TTL, which may be returned while it is young."""

_OVERHEAD = 400
"""The approximate memory of a copy without its texts (bytes)."""


_TAG = re.compile(r'(?:W/)?"(j[0-9]{1,18})((?:\.[a-z0-9_]{1,128}:[0-9]{1,19})+)"', re.ASCII)


@dataclass(frozen=True, slots=True)
class Copy:
    """A response, or the trace of a response that must not be stored.

    Attributes:
        status: 200, or 404 for an absent object.
        body: As received; None where the response must not be stored.
        since: A time, by the client's clock, at which the response was still current.
        knows: The copy contains this client's writes up to this time.
        received: When it was received, by the client's clock.
        expires_us: When it expires by the sketch's clock (microseconds); 0: it may not be returned
            unless the origin confirms it.
        epoch: The epoch of the filters that covered it.
    """

    status: int
    etag: str | None
    body: bytes | None
    since: float
    knows: float
    received: float
    expires_us: int
    epoch: int


class Copies:
    def __init__(self, limit_bytes: int, statistics: Statistics) -> None:
        self._limit = limit_bytes
        self._statistics = statistics
        self._copies: OrderedDict[str, Copy] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._copies)

    def get(self, address: str) -> Copy | None:
        copy = self._copies.get(address)
        if copy is not None:
            self._copies.move_to_end(address)
        return copy

    def put(self, address: str, copy: Copy) -> None:
        """Store a copy that was received just now, merged with the one that is stored."""
        old = self._copies.get(address)
        if old is not None:
            copy = _latest(old, copy)
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


def _latest(old: Copy, new: Copy) -> Copy:
    """Return the copy that a client may use after receiving both: never the older one.

    Responses overtake each other. If the second was requested before the first arrived, only their
    versions show which one is older; if they do not, neither may be returned. The newer one takes
    the times of both.
    """
    if new.since >= old.received:
        return new
    return replace(
        _newer(old, new),
        since=max(old.since, new.since),
        knows=max(old.knows, new.knows),
        received=new.received,
    )


def _newer(old: Copy, new: Copy) -> Copy:
    """Return the newer one; if the versions do not show it, a copy that may not be returned."""
    if (old.status, old.etag, old.body) == (new.status, new.etag, new.body):
        return new
    newer = is_newer(new.etag, old.etag)
    if newer is None:
        return replace(new, etag=None, body=None, expires_us=0)
    # A `no-store` response with the same tag has no body, and only confirms the old one.
    confirmed = old.etag == new.etag and new.body is None
    return new if newer and not confirmed else old


def _size(address: str, copy: Copy) -> int:
    return _OVERHEAD + len(address) + len(copy.body or b"") + len(copy.etag or "")


def is_newer(tag: str | None, than: str | None) -> bool | None:
    """Whether a tag names a newer state of a resource than another, or the same.

    A tag names the version of each cache group, and versions only grow (docs/data-api.md). None:
    unknown, as for absent objects, for results, and across schemas.
    """
    if tag is None or than is None:
        return None
    if tag == than:
        return True
    first, second = _versions(tag), _versions(than)
    if first.keys() != second.keys() or not first:
        return None
    # Newer in one group and older in another: a joined response is no snapshot.
    differ = {first[name] > second[name] for name in first if first[name] != second[name]}
    return differ.pop() if len(differ) == 1 else None


def _versions(tag: str) -> dict[str, int]:
    """Return the version of each group, by schema and group; empty for a foreign tag."""
    match = _TAG.fullmatch(tag)
    if match is None:
        return {}
    pairs = [part.split(":") for part in match[2][1:].split(".")]
    return {f"{match[1]}.{group}": int(version) for group, version in pairs}
