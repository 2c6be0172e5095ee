"""Renews copies that are read often before they are too old, many objects in one request.

A copy that the filter contains is usable as long as it is young. In a busy client such copies cause
most of the requests to the origin: one object at a time, and a reader waits for each. Requesting
fifty at once costs network and service little more than requesting a few.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from sketch.client.answers import OK
from sketch.client.clock import Clock
from sketch.client.connection import ServiceResponse
from sketch.client.copies import NO_TTL, Copies, Copy
from sketch.client.filters import FilterKeeper
from sketch.client.problems import PortolanError, problem_of
from sketch.client.resources import ObjectResource, Readable
from sketch.client.statistics import Statistics

__all__ = ["MAX_SINGLE", "Demand", "DemandEntry", "Post", "Renewer"]

_log = logging.getLogger(__name__)

Post = Callable[[str, bytes], Awaitable[ServiceResponse]]

_ROUND_SHARE = 0.2
"""The interval of rounds, as a share of the bound."""

_RENEWAL_SHARE = 0.6
"""The share of the bound after which a copy is renewed: it has to outlive the next round."""

_MIN_READS = 2
"""Reads of a copy that make its renewal worthwhile: as many will not wait next time."""

_BATCH_SIZE = 50
"""Objects in one request: the service does nothing else meanwhile."""

MAX_SINGLE = 3
"""Up to this many are requested one by one: their responses have TTLs and may be cached."""


_MAX_OBJECTS = 1_000
"""Objects that are remembered; readers revalidate all others."""

_IDLE_ROUNDS = 10
"""Rounds without a read after which an object is forgotten."""

_STABLE_ROUNDS = 25
"""Rounds without a change after which an object is not expected to change soon."""


@dataclass(slots=True)
class DemandEntry:
    """A whole object that is in demand.

    Attributes:
        read_round: The round in which it was last read.
        reads: The number of reads since the last renewal.
        changed_round: The round in which a change was seen, or in which it was first in demand.
    """

    address: str
    resource: ObjectResource
    read_round: int
    changed_round: int
    reads: int = 1


class Demand:
    """Objects read in the last rounds whose copies are usable only while they are young.

    The object that was read last is at the end.
    """

    def __init__(self) -> None:
        self._round = 0
        self._entries: dict[str, DemandEntry] = {}

    def note(self, address: str, resource: Readable) -> None:
        """Count a read; only whole objects are remembered."""
        entry = self._entries.get(address)
        if entry is not None:
            entry.reads += 1
            if entry.read_round != self._round:
                entry.read_round = self._round
                # Moved to the end: `recent` drops entries from the front.
                self._entries[address] = self._entries.pop(address)
        elif isinstance(resource, ObjectResource) and not resource.fields:
            self._entries[address] = DemandEntry(address, resource, self._round, self._round)

    def changed(self, entry: DemandEntry) -> None:
        entry.changed_round = self._round

    def is_stable(self, entry: DemandEntry) -> bool:
        return self._round - entry.changed_round >= _STABLE_ROUNDS

    def recent(self) -> Sequence[DemandEntry]:
        """Start a round, and return the objects read in the last ones."""
        self._round += 1
        while self._entries:
            oldest = next(iter(self._entries.values()))
            if (
                len(self._entries) <= _MAX_OBJECTS
                and oldest.read_round >= self._round - _IDLE_ROUNDS
            ):
                break
            del self._entries[oldest.address]
        return list(self._entries.values())


@dataclass(eq=False)
class Renewer:
    """Renews copies that are in demand.

    `_revalidate` requests one object, and does not wait for it.
    """

    _demand: Demand
    _post: Post
    _revalidate: Callable[[ObjectResource], None]
    _keeper: FilterKeeper
    _copies: Copies
    _clock: Clock
    _statistics: Statistics
    _last_request_s: float = field(default=0.0, init=False)

    async def run(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        while True:
            await sleep(_ROUND_SHARE * self._keeper.pace_s)
            await self._renew(self._demand.recent())

    async def _renew(self, recent: Sequence[DemandEntry]) -> None:
        """Renew copies that would be too old by the end of the next round.

        Stable objects that the filter does not contain are revalidated separately, to get a TTL:
        without one an object does not enter the filter at its next write.
        """
        batched: list[DemandEntry] = []
        single: list[DemandEntry] = []
        now_us = self._keeper.latest_us(self._clock())
        for entry, copy in self._find_old(recent):
            keys = entry.resource.keys(self._keeper.groups())
            if self._filter_contains(keys):
                batched.append(entry)
            elif keys and copy.expires_us <= now_us:
                (single if self._demand.is_stable(entry) else batched).append(entry)
        if len(batched) <= MAX_SINGLE:
            batched, single = [], batched + single
        for entry in single[:_BATCH_SIZE]:
            entry.reads = 0
            self._revalidate(entry.resource)
        batches = (batched[at : at + _BATCH_SIZE] for at in range(0, len(batched), _BATCH_SIZE))
        await asyncio.gather(*map(self._request, batches))

    def _filter_contains(self, keys: Sequence[str]) -> bool:
        current = self._keeper.usable()
        return current is not None and any(current.document.contains(key) for key in keys)

    def _find_old(self, recent: Sequence[DemandEntry]) -> Iterator[tuple[DemandEntry, Copy]]:
        threshold = self._clock() + self._last_request_s - _RENEWAL_SHARE * self._keeper.bound_s
        for entry in recent:
            if entry.reads < _MIN_READS:
                continue
            copy = self._copies.get(entry.address)
            if copy is None or copy.etag is None or copy.body is None or copy.since > threshold:
                continue
            yield entry, copy

    async def _request(self, entries: Sequence[DemandEntry]) -> None:
        operations = [self._operation(entry) for entry in entries]
        epoch, sent = self._keeper.epoch, self._clock()
        self._statistics.renewals += 1
        try:
            response = await self._post("batch", orjson.dumps({"operations": operations}))
            if response.status != OK:
                raise problem_of(response.status, response.content, response.headers)
            received = self._clock()
            self._last_request_s = received - sent
            for entry, result in zip(entries, orjson.loads(response.content), strict=True):
                self._store_result(entry, result, sent, received, epoch)
        except PortolanError as error:
            # No read fails: readers revalidate copies that were not renewed.
            _log.info("no copies were renewed: %s", error)
        except (ValueError, TypeError, LookupError, AttributeError):
            _log.warning("malformed response to a batch", exc_info=True)

    def _operation(self, entry: DemandEntry) -> dict[str, str]:
        resource, copy = entry.resource, self._copies.get(entry.address)
        condition = {"if_none_match": copy.etag} if copy is not None and copy.etag else {}
        return {"op": "get", "class": resource.class_name, "id": resource.id, **condition}

    def _store_result(
        self,
        entry: DemandEntry,
        result: Mapping[str, Any],
        sent: float,
        received: float,
        epoch: int,
    ) -> None:
        """Store one result of a batch, as old as the request."""
        tag, old = result.get("etag"), self._copies.get(entry.address)
        if not isinstance(tag, str) or "partial" in result:
            return
        if old is not None and old.etag == tag and old.body is not None:
            # The expiry and the filters that cover it stay the same.
            new = replace(old, since=sent, knows=sent, received=received)
        elif result["status"] == OK:
            body = orjson.dumps(result["body"])
            new = Copy(OK, tag, body, sent, sent, received, NO_TTL, epoch)
            self._demand.changed(entry)
        else:
            return
        self._statistics.renewed += 1
        entry.reads = 0
        self._copies.put(entry.address, new)
