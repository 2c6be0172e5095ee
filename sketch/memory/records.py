"""The records of a partition in memory: deadlines, owed purges, queries and versions."""

from __future__ import annotations

from heapq import heappop, heappush
from uuid import uuid4

from sketch.protocol.bounds import microseconds, repeat_step_us
from sketch.protocol.port import QueryRegistrations, SketchLimits

__all__ = ["Deadlines", "OwedPurges", "Registrations", "Versions"]


class Deadlines:
    """Keys with a time each; `put` and `take` cost amortised logarithmic time."""

    def __init__(self) -> None:
        self._times: dict[str, int] = {}
        self._queue: list[tuple[int, str]] = []
        self._queued: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._times)

    def __contains__(self, key: str) -> bool:
        return key in self._times

    def of(self, key: str) -> int:
        """Return the time of a key; 0 if it has none."""
        return self._times.get(key, 0)

    def first(self) -> int | None:
        """Return the earliest time; None: there are no keys."""
        while self._queue:
            queued, key = self._queue[0]
            time = self._times.get(key)
            if self._queued.get(key) == queued == time:
                return time
            heappop(self._queue)
            if self._queued.get(key) == queued:
                del self._queued[key]
                if time is not None:
                    self.put(key, time)
        return None

    def due(self, now: int) -> int:
        return sum(time <= now for time in self._times.values())

    def put(self, key: str, time: int) -> None:
        self._times[key] = time
        # A later time is found when the earlier one comes up.
        if key not in self._queued or time < self._queued[key]:
            self._queued[key] = time
            heappush(self._queue, (time, key))

    def extend(self, key: str, until: int) -> None:
        self.put(key, max(until, self.of(key)))

    def discard(self, key: str) -> None:
        # Its entry in the queue is dropped when it comes up.
        self._times.pop(key, None)

    def take(self, now: int, limit: int) -> list[str]:
        """Remove keys whose time is not after `now`, at most `limit`; return them in order."""
        keys: list[str] = []
        while self._queue and self._queue[0][0] <= now and len(keys) < limit:
            queued, key = heappop(self._queue)
            if self._queued.get(key) != queued:
                continue
            del self._queued[key]
            time = self._times.get(key)
            if time is not None and time > now:
                self.put(key, time)
            elif time is not None:
                del self._times[key]
                keys.append(key)
        return keys


class OwedPurges:
    """For each key the times at or after which it must be purged.

    A purge that starts later serves all times before it, and its ticket is the last of them: it has
    the same ticket when it is repeated, unless another time has come. Repeated purges are rounded
    up to a few instants, so that a key that is written continuously owes only a few.

    Attributes:
        next: When each key is handed out next.
    """

    def __init__(self, limits: SketchLimits) -> None:
        repeat_s = limits.purge_repeat_s
        self._repeat_us = None if repeat_s is None else microseconds(repeat_s)
        self._step_us = repeat_step_us(limits)
        self._lease_us = microseconds(limits.purge_lease_s)
        self._owed: dict[str, set[int]] = {}
        self.next = Deadlines()

    def __len__(self) -> int:
        return len(self._owed)

    def owe(self, now: int, key: str) -> None:
        """Owe a purge now, and one after the longest fill; unless nothing is purged."""
        if self._repeat_us is None:
            return
        due = now + 1  # a purge handed out at this instant does not serve it
        repeated = -(-(due + self._repeat_us) // self._step_us) * self._step_us
        later = {time for time in self._owed.get(key, ()) if time > due}
        self._owed[key] = later | {due, repeated}
        self.next.put(key, due)

    def hand_out(self, now: int, key: str) -> int:
        """Hand out a key that is due; return its ticket, the last time that has come."""
        self.next.put(key, now + self._lease_us)
        return max((time for time in self._owed.get(key, ()) if time <= now), default=0)

    def discard(self, key: str) -> None:
        self._owed.pop(key, None)
        self.next.discard(key)

    def acknowledge(self, key: str, ticket: int) -> None:
        """Remove the times that a purge with this ticket serves."""
        remaining = {time for time in self._owed.get(key, ()) if time > ticket}
        self.discard(key)
        if remaining:
            self._owed[key] = remaining
            self.next.put(key, min(remaining))


_QUIET_US = 100_000


class Registrations:
    """The keys of query results that may have fresh copies, and that no write has outdated."""

    def __init__(self, limit: int, first: int) -> None:
        self._limit = limit
        self._numbers: dict[str, int] = {}
        self._quiet_until = 0
        self.sequence = first

    def __contains__(self, key: str) -> bool:
        return key in self._numbers

    def is_open(self, now: int, key: str) -> bool:
        """Whether a query is registered, or can be."""
        if key in self._numbers:
            return True
        return now >= self._quiet_until and len(self._numbers) < self._limit

    def add(self, key: str) -> None:
        if key not in self._numbers:
            self.sequence += 1
            self._numbers[key] = self.sequence

    def discard(self, key: str) -> None:
        self._numbers.pop(key, None)

    def keep_quiet(self, now: int) -> None:
        self._quiet_until = now + _QUIET_US

    def since(self, sequence: int) -> QueryRegistrations:
        """Return the registrations after a sequence; all if it is not of this generation."""
        complete = sequence == 0 or sequence > self.sequence
        numbers = {key: n for key, n in self._numbers.items() if complete or n > sequence}
        return QueryRegistrations(
            self.sequence, len(self._numbers), numbers, complete and sequence != self.sequence
        )


class Versions:
    """The last version of each key that caches may hold.

    While writes to a key are pending its version is unknown, but the highest version that one of
    them made is remembered: the write that ends last need not be the latest.
    """

    def __init__(self) -> None:
        self._certain: dict[str, int] = {}
        self._fills: dict[str, str] = {}
        self._max_versions: dict[str, int | None] = {}

    def of(self, key: str) -> int | None:
        """Return the version of a key, if it is known for certain."""
        return self._certain.get(key)

    def fill_of(self, key: str) -> str | None:
        """Return the token that allows a fill of a key, if a reader has one."""
        return self._fills.get(key)

    def await_fill(self, key: str) -> None:
        """Allow a fill of a key whose version is unknown; several readers share the token."""
        if key not in self._certain:
            self._fills.setdefault(key, uuid4().hex)

    def fill(self, key: str, tokens: frozenset[str], version: int) -> None:
        """Set a version that was read, unless a write intervened."""
        if self._fills.get(key) in tokens:
            del self._fills[key]
            self._certain[key] = version

    def forget(self, key: str) -> None:
        """Forget the version of a key, and refuse the fills of earlier readers."""
        for records in (self._certain, self._fills, self._max_versions):
            records.pop(key, None)

    def record_write(self, key: str, version: int | None, *, pending: bool) -> None:
        """Set the version that a write made; None: it is unknown."""
        before = self._max_versions.get(key, 0)
        # One unknown version makes the highest one unknown.
        last = None if version is None or before is None else max(before, version)
        self.forget(key)
        if pending:
            self._max_versions[key] = last
        elif last is not None:
            self._certain[key] = last
