"""What is read again and again is renewed before it grows too old, many objects in one request.

A copy that the filter names is good for as long as it is young. In a busy client that is most of
what goes to the origin: one object at a time, and a reader waits for each. To request fifty at once
costs network and service little more than to request a few.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import orjson

from sketch.client.answers import OK
from sketch.client.clock import Clock
from sketch.client.connection import Response
from sketch.client.copies import NO_TTL, Copies, Copy
from sketch.client.filters import FilterKeeper
from sketch.client.problems import PortolanError, problem_of
from sketch.client.resources import Readable, Resource
from sketch.client.statistics import Statistics

__all__ = ["Demand", "DemandEntry", "Post", "Renewer"]

_log = logging.getLogger(__name__)

Post = Callable[[str, bytes], Awaitable[Response]]
"""Sends JSON by a POST for a path below the database."""

_ROUND = 0.2
"""A round's share of the bound."""

_OLD = 0.6
"""The share of the bound after which a copy is renewed: it is to outlive the next round."""

_WORTH = 2
"""Reads of a copy that are worth its renewal: so many will wait for nothing next time."""

_AT_ONCE = 50
"""Objects of one request: the service does nothing else meanwhile."""

_FEW = 3
"""So few are requested one by one: their answers have expiries, and may be kept on the way."""


_MOST = 1_000
"""Objects that are remembered; those beyond are revalidated by who reads them."""

_ROUNDS = 10
"""Rounds for which an object is remembered that is not read again."""

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
    resource: Resource
    read: int
    changed: int
    reads: int = 1


class Demand:
    """What was read lately though only its youth speaks for it, and will be read again.

    The object that was read last is at the end.
    """

    def __init__(self) -> None:
        self._round = 0
        self._entries: dict[str, DemandEntry] = {}

    def note(self, address: str, resource: Readable) -> None:
        """Remember that a resource was read; only of whole objects."""
        entry = self._entries.get(address)
        if entry is not None:
            entry.reads += 1
            if entry.read != self._round:
                entry.read = self._round
                self._entries[address] = self._entries.pop(address)
        elif isinstance(resource, Resource) and not resource.fields:
            self._entries[address] = DemandEntry(address, resource, self._round, self._round)

    def changed(self, entry: DemandEntry) -> None:
        """Remember that an object has changed."""
        entry.changed = self._round

    def is_stable(self, entry: DemandEntry) -> bool:
        """Whether an object is not expected to change soon."""
        return self._round - entry.changed >= _STABLE

    def lately(self) -> Sequence[DemandEntry]:
        """Begin a round, and return what was read in the last ones."""
        self._round += 1
        while self._entries:
            oldest = next(iter(self._entries.values()))
            if len(self._entries) <= _MOST and oldest.read >= self._round - _ROUNDS:
                break
            del self._entries[oldest.address]
        return list(self._entries.values())


class _Exchange(NamedTuple):
    sent: float
    received: float
    epoch: int


@dataclass(eq=False)
class Renewer:
    """Renews copies that are in demand.

    `revalidate` requests one object anew, and does not wait for it.
    """

    _demand: Demand
    _post: Post
    _revalidate: Callable[[Resource], None]
    _keeper: FilterKeeper
    _copies: Copies
    _clock: Clock
    _statistics: Statistics
    _took_s: float = field(default=0.0, init=False)

    async def run(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        """Renew until cancelled."""
        while True:
            await sleep(_ROUND * self._keeper.bound_s)
            await self._renew(self._demand.lately())

    async def _renew(self, lately: Sequence[DemandEntry]) -> None:
        """Renew what would be too old by the end of the next round.

        What the filter does not name, and does not seem to change, is revalidated by itself: so it
        gets an expiry to be shown by. Without one, what is written next is not named any more.
        """
        together: list[DemandEntry] = []
        alone: list[DemandEntry] = []
        now_us = self._keeper.latest_us(self._clock())
        for entry, copy in self._grown_old(lately):
            keys = entry.resource.keys(self._keeper.groups())
            if self._names(keys):
                together.append(entry)
            elif keys and copy.expires_us <= now_us:
                (alone if self._demand.is_stable(entry) else together).append(entry)
        if len(together) <= _FEW:
            together, alone = [], together + alone
        for entry in alone[:_AT_ONCE]:
            entry.reads = 0
            self._revalidate(entry.resource)
        parcels = (together[at : at + _AT_ONCE] for at in range(0, len(together), _AT_ONCE))
        await asyncio.gather(*map(self._ask, parcels))

    def _names(self, keys: Sequence[str]) -> bool:
        """Whether the filter names one of the keys."""
        current = self._keeper.usable()
        return current is not None and any(current.document.contains(key) for key in keys)

    def _grown_old(self, lately: Sequence[DemandEntry]) -> Iterator[tuple[DemandEntry, Copy]]:
        old = self._clock() + self._took_s - _OLD * self._keeper.bound_s
        for entry in lately:
            if entry.reads < _WORTH:
                continue
            copy = self._copies.get(entry.address)
            if copy is None or copy.etag is None or copy.body is None or copy.since > old:
                continue
            yield entry, copy

    async def _ask(self, some: Sequence[DemandEntry]) -> None:
        """Request many objects; what fails is revalidated by who reads it."""
        operations = [self._operation(entry) for entry in some]
        epoch, sent = self._keeper.epoch, self._clock()
        self._statistics.renewals += 1
        try:
            response = await self._post("batch", orjson.dumps({"operations": operations}))
            if response.status != OK:
                raise problem_of(response.status, response.content, response.headers)
            now = self._clock()
            self._took_s = now - sent
            for entry, result in zip(some, orjson.loads(response.content), strict=True):
                self._take(entry, result, _Exchange(sent, now, epoch))
        except PortolanError as error:
            _log.info("nothing was renewed: %s", error)
        except (ValueError, TypeError, LookupError):
            _log.warning("an answer to a batch makes no sense", exc_info=True)

    def _operation(self, entry: DemandEntry) -> dict[str, str]:
        resource, copy = entry.resource, self._copies.get(entry.address)
        known = {"if_none_match": copy.etag} if copy is not None and copy.etag else {}
        return {"op": "get", "class": resource.class_name, "id": resource.id, **known}

    def _take(self, entry: DemandEntry, result: Mapping[str, Any], exchange: _Exchange) -> None:
        """Keep what was answered of an object, as old as the request."""
        tag, old = result.get("etag"), self._copies.get(entry.address)
        if tag is None or "partial" in result:
            return
        if old is not None and old.etag == tag and old.body is not None:
            # It expires as it was promised, under the filters it was promised by.
            new = replace(old, since=exchange.sent, knows=exchange.sent, received=exchange.received)
        elif result["status"] == OK:
            body = orjson.dumps(result["body"])
            sent, received, epoch = exchange
            new = Copy(OK, tag, body, sent, sent, received, NO_TTL, epoch)
            self._demand.changed(entry)
        else:
            return
        self._statistics.renewed += 1
        entry.reads = 0
        self._copies.put(entry.address, new)
