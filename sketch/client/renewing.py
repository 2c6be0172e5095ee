"""Renews copies that are read often before they are too old, many objects in one request.

A copy that the filter contains is usable as long as it is young. In a busy client such copies cause
most of the requests to the origin: one object at a time, and a reader waits for each. To request
fifty at once costs network and service little more than to request a few.
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

__all__ = ["FEW", "Demand", "DemandEntry", "Post", "Renewer"]

_log = logging.getLogger(__name__)

Post = Callable[[str, bytes], Awaitable[ServiceResponse]]

_ROUND = 0.2
"""The interval of rounds, as a share of the bound."""

_OLD = 0.6
"""The share of the bound after which a copy is renewed: it has to outlive the next round."""

_WORTH = 2
"""Reads of a copy that are worth its renewal: so many will not wait the next time."""

_AT_ONCE = 50
"""Objects of one request: the service does nothing else meanwhile."""

FEW = 3
"""Up to so many are requested one by one: their responses have TTLs, and may be cached."""


_MOST = 1_000
"""Objects that are remembered; those beyond are revalidated by their readers."""

_ROUNDS = 10
"""Rounds after which an object is forgotten that is not read again."""

_STABLE = 25
"""Rounds after which an object that has not changed is not expected to change soon."""


@dataclass(slots=True)
class DemandEntry:
    """A whole object that is in demand.

    Attributes:
        read: The round in which it was read last.
        reads: How often it was read since it was renewed last.
        changed: The round in which it was seen to have changed, or was first in demand.
    """

    address: str
    resource: ObjectResource
    read: int
    changed: int
    reads: int = 1


class Demand:
    """What was read in the last rounds, and is usable only while it is young.

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
            if entry.read != self._round:
                entry.read = self._round
                # Moved to the end: `recent` drops entries from the front.
                self._entries[address] = self._entries.pop(address)
        elif isinstance(resource, ObjectResource) and not resource.fields:
            self._entries[address] = DemandEntry(address, resource, self._round, self._round)

    def changed(self, entry: DemandEntry) -> None:
        entry.changed = self._round

    def is_stable(self, entry: DemandEntry) -> bool:
        return self._round - entry.changed >= _STABLE

    def recent(self) -> Sequence[DemandEntry]:
        """Begin a round, and return what was read in the last ones."""
        self._round += 1
        while self._entries:
            oldest = next(iter(self._entries.values()))
            if len(self._entries) <= _MOST and oldest.read >= self._round - _ROUNDS:
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
    _took_s: float = field(default=0.0, init=False)

    async def run(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        while True:
            await sleep(_ROUND * self._keeper.pace_s)
            await self._renew(self._demand.recent())

    async def _renew(self, recent: Sequence[DemandEntry]) -> None:
        """Renew what would be too old by the end of the next round.

        What the filter does not contain, and does not seem to change, is revalidated separately: so
        it gets a TTL. A copy without one is not in the filter when it is written next.
        """
        together: list[DemandEntry] = []
        alone: list[DemandEntry] = []
        now_us = self._keeper.latest_us(self._clock())
        for entry, copy in self._grown_old(recent):
            keys = entry.resource.keys(self._keeper.groups())
            if self._names(keys):
                together.append(entry)
            elif keys and copy.expires_us <= now_us:
                (alone if self._demand.is_stable(entry) else together).append(entry)
        if len(together) <= FEW:
            together, alone = [], together + alone
        for entry in alone[:_AT_ONCE]:
            entry.reads = 0
            self._revalidate(entry.resource)
        parcels = (together[at : at + _AT_ONCE] for at in range(0, len(together), _AT_ONCE))
        await asyncio.gather(*map(self._ask, parcels))

    def _names(self, keys: Sequence[str]) -> bool:
        current = self._keeper.usable()
        return current is not None and any(current.document.contains(key) for key in keys)

    def _grown_old(self, recent: Sequence[DemandEntry]) -> Iterator[tuple[DemandEntry, Copy]]:
        old = self._clock() + self._took_s - _OLD * self._keeper.bound_s
        for entry in recent:
            if entry.reads < _WORTH:
                continue
            copy = self._copies.get(entry.address)
            if copy is None or copy.etag is None or copy.body is None or copy.since > old:
                continue
            yield entry, copy

    async def _ask(self, some: Sequence[DemandEntry]) -> None:
        operations = [self._operation(entry) for entry in some]
        epoch, sent = self._keeper.epoch, self._clock()
        self._statistics.renewals += 1
        try:
            response = await self._post("batch", orjson.dumps({"operations": operations}))
            if response.status != OK:
                raise problem_of(response.status, response.content, response.headers)
            received = self._clock()
            self._took_s = received - sent
            for entry, result in zip(some, orjson.loads(response.content), strict=True):
                self._take(entry, result, sent, received, epoch)
        except PortolanError as error:
            # No read fails: readers revalidate what was not renewed.
            _log.info("nothing was renewed: %s", error)
        except (ValueError, TypeError, LookupError, AttributeError):
            _log.warning("an answer to a batch makes no sense", exc_info=True)

    def _operation(self, entry: DemandEntry) -> dict[str, str]:
        resource, copy = entry.resource, self._copies.get(entry.address)
        known = {"if_none_match": copy.etag} if copy is not None and copy.etag else {}
        return {"op": "get", "class": resource.class_name, "id": resource.id, **known}

    def _take(
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
            # It expires as it was promised, under the filters it was promised by.
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
