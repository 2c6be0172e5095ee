"""One partition of the sketch in memory: the effects of writes, reads and time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from uuid import uuid4

from sketch.filter.counting import CountingFilter
from sketch.filter.shape import FilterShape
from sketch.memory.records import Deadlines, OwedPurges, Registrations, Versions
from sketch.protocol.bounds import lifetime_us, microseconds
from sketch.protocol.port import (
    EndResult,
    Partition,
    ResultChanges,
    SketchLimits,
    SketchPartitionState,
)

__all__ = ["MemoryPartition"]


class MemoryPartition:
    """A partition; `now` is microseconds on the sketch's clock.

    Attributes:
        layout: The meaning of its keys; empty: none was adopted.
        schema: The schema that registrations must name.
        saturated_until: Until then every key counts as being in the filter.
        uncacheable_until: Until then nothing may be cached.
    """

    def __init__(self, limits: SketchLimits, shape: FilterShape, now: int, *, fresh: bool) -> None:
        self._limits = limits
        self._lease_us = microseconds(limits.lease_s)
        self._margin_us = microseconds(limits.margin_s)
        self._handed_out = Deadlines()
        self._stale = Deadlines()
        self._leases = Deadlines()
        self._writes: dict[str, dict[str, bool]] = {}  # for each key, whether caches may hold it
        self._pending: dict[str, int] = {}
        self._concurrent: set[str] = set()
        self._contended: set[str] = set()
        self.queries = Registrations(limits.queries, now)
        self.generation = uuid4().hex
        self.filter = CountingFilter(shape)
        self.purges = OwedPurges(limits)
        self.versions = Versions()
        self.layout = self.schema = ""
        self.saturated_until = 0 if fresh else now + lifetime_us(limits)
        self.uncacheable_until = 0 if fresh else now + self._lease_us

    @property
    def has_fresh_copies(self) -> bool:
        """Whether copies may be fresh."""
        return len(self._handed_out) > 0

    def is_spent(self, now: int) -> bool:
        """Whether no write is pending, and no copy may be fresh."""
        return not self._writes and not self.has_fresh_copies and now >= self.saturated_until

    def begin(self, now: int, keys: Sequence[str], token: str) -> list[str]:
        """Announce a write, or more keys of it; return the keys that caches may hold."""
        write = self._writes.get(token)
        if write is None:
            write = self._writes[token] = {}
            self._leases.put(token, now + self._lease_us)
        for key in keys:
            if key not in write:
                write[key] = self._announce(now, key)
        return [key for key in dict.fromkeys(keys) if write[key]]

    def _announce(self, now: int, key: str) -> bool:
        expiry = self._handed_out.of(key)
        if expiry > now:  # a pending write alone, of a key that no cache can hold, sets no bits
            self._stale.extend(key, expiry)
            self.filter.add(key)
        self._pending[key] = self._pending.get(key, 0) + 1
        if self._pending[key] > 1:
            self._concurrent.add(key)
        self.versions.forget(key)
        return self._may_be_held(now, key)

    def _may_be_held(self, now: int, key: str) -> bool:
        """Whether a cache may hold a fresh copy of a key; after a loss, of any."""
        return self._handed_out.of(key) > now or now < self.saturated_until

    def end(self, now: int, token: str, versions: Mapping[str, int]) -> EndResult:
        """End a pending write, set its versions, owe purges; an unknown token has ended."""
        write = self._writes.pop(token, None)
        if write is None:
            return EndResult.DONE
        self._leases.discard(token)
        contended = not self._contended.isdisjoint(write)
        for key, is_held in write.items():
            pending = self._withdraw(now, key)
            if self._handed_out.of(key) > now:
                self.versions.record_write(key, versions.get(key), pending=pending)
            else:
                self.versions.forget(key)
            if is_held:
                self.purges.owe(now, key)
        return EndResult.CONTENDED if contended else EndResult.DONE

    def close(
        self, now: int, token: str, versions: Mapping[str, int], changes: ResultChanges
    ) -> EndResult:
        """End a write, unless its changes of query results are out of date."""
        write = self._writes.get(token)
        # The write may affect a query that was registered since the changes were computed.
        if write is not None and changes.sequence != self.queries.sequence:
            if changes.pauses_registration:
                self.queries.keep_quiet(now)
            return EndResult.BEHIND
        if write is not None and changes.exclusive and not self._concurrent.isdisjoint(write):
            return EndResult.CONCURRENT
        return self.end(now, token, versions)

    def invalidate_result(self, now: int, query: str) -> None:
        """Record that a query's result may have changed: all earlier copies are stale."""
        expiry = self._handed_out.of(query)
        self.queries.discard(query)
        if expiry > now:
            self._stale.extend(query, expiry)
            self.filter.add(query)
            self.purges.owe(now, query)

    def report_query(self, now: int, query: str, ttl_us: int) -> int:
        """Register a query whose result is about to be read; return its TTL."""
        if not self.queries.is_open(now, query):
            return 0
        granted = self.report_read(now, (query,), ttl_us)
        if granted:
            self.versions.forget(query)
            self.queries.add(query)
        return granted

    def _withdraw(self, now: int, key: str) -> bool:
        self._pending[key] -= 1
        if self._pending[key]:
            return True
        del self._pending[key]
        self._concurrent.discard(key)
        self._contended.discard(key)
        if self._stale.of(key) <= now:
            self._stale.discard(key)
            self.filter.discard(key)
        return False

    def report_read(self, now: int, keys: Sequence[str], ttl_us: int) -> int:
        """Report that a response is about to be read; return its TTL."""
        if ttl_us <= 0 or now < self.uncacheable_until or self._is_refused(keys):
            return 0
        fresh = now + self._limits.layers * ttl_us + self._margin_us
        for key in keys:
            self._handed_out.extend(key, fresh)
            self.versions.await_fill(key)
        return ttl_us

    def _is_refused(self, keys: Sequence[str]) -> bool:
        if pending := {key for key in keys if key in self._pending}:
            self._contended |= pending
            return True
        # A full partition makes new keys uncacheable; it neither grows nor forgets a copy.
        new = sum(key not in self._handed_out for key in keys)
        return new > 0 and len(self._handed_out) + new > self._limits.keys

    def expire(self, now: int, limit: int) -> None:
        """Remove expired keys, at most `limit` of either kind."""
        for key in self._stale.take(now, limit):
            # A key with a pending write stays in the filter until that ends (`_withdraw`).
            if key not in self._pending:
                self.filter.discard(key)
        for key in self._handed_out.take(now, limit):
            self.versions.forget(key)
            if not self._may_be_held(now, key):
                self.purges.discard(key)
            self.queries.discard(key)

    def take_purges(self, now: int, limit: int) -> list[tuple[str, int]]:
        """Hand out keys whose purges are due, with tickets; drop keys whose copies have expired."""
        purges: list[tuple[str, int]] = []
        for key in self.purges.next.take(now, limit):
            if self._may_be_held(now, key):
                purges.append((key, self.purges.hand_out(now, key)))
            else:
                self.purges.discard(key)
        return purges

    def state(self, now: int, partition: Partition) -> SketchPartitionState:
        return SketchPartitionState(
            partition=partition,
            time_us=now,
            generation=self.generation,
            revision=self.filter.revision,
            keys=len(self.filter),
            bits_set=self.filter.bits_set,
            handed_out=len(self._handed_out),
            pending=len(self._writes),
            first_lease_us=self._leases.first(),
            revalidate_all_until_us=self.saturated_until,
            uncacheable_until_us=self.uncacheable_until,
            purges=len(self.purges),
            purges_due=self.purges.next.due(now),
            first_purge_us=self.purges.next.first(),
            bytes=None,
        )

    def orphans(self, now: int, offset: int, limit: int) -> list[tuple[str, tuple[str, ...]]]:
        """Return tokens and keys of writes whose leases have ended, after the first `offset`."""
        overdue = (write for write in self._writes.items() if self._leases.of(write[0]) <= now)
        return [(token, tuple(write)) for token, write in islice(overdue, offset, offset + limit)]
