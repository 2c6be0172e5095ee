"""How a read is answered: from the client's copy, by any cache on the way, or by the origin."""

from __future__ import annotations

import math
from dataclasses import replace

import httpx

from sketch.client.answers import (
    NOT_FOUND,
    NOT_MODIFIED,
    OK,
    Answer,
    Source,
    answer_of,
    expires_us,
    is_not_stored,
    source_of,
    unsure_s,
)
from sketch.client.clock import Clock
from sketch.client.connection import Get
from sketch.client.copies import Copies, Copy
from sketch.client.filters import FilterKeeper, HeldFilter
from sketch.client.flights import Flights, Need
from sketch.client.own_writes import OwnWrites
from sketch.client.problems import problem_of
from sketch.client.resources import Readable
from sketch.client.statistics import Statistics

__all__ = ["Reader"]


class Reader:
    """Answers reads within the bound.

    Args:
        get: Sends requests.
        keeper: Has the filter.
        own_writes: What this client has written.
        copies: The client's cache.
        clock: The client's clock.
        statistics: Where to count.
    """

    def __init__(
        self,
        get: Get,
        keeper: FilterKeeper,
        own_writes: OwnWrites,
        copies: Copies,
        clock: Clock,
        statistics: Statistics,
    ) -> None:
        self._get = get
        self._keeper = keeper
        self._own_writes = own_writes
        self._copies = copies
        self._clock = clock
        self._statistics = statistics
        self._flights = Flights()
        self._on_systems: set[str] = set()

    async def read(self, resource: Readable, *, refresh: bool) -> Answer:
        """Return an answer that is within the bound.

        Args:
            resource: What to read.
            refresh: As it is now, whatever the filter says.

        Raises:
            PortolanError: There is none.
        """
        address = resource.path
        copy = self._copies.get(address)
        need = self._need(resource, copy, refresh=refresh)
        if copy is not None and self._will_do(copy, need):
            self._statistics.hits += 1
            return Answer(copy.status, copy.etag, copy.body, Source.OWN)
        flight = self._flights.find(address, need)
        if flight is None:
            sent = self._clock()
            fetch = self._fetch(resource, need, sent, copy)
            flight = self._flights.start(address, need, sent, fetch)
        else:
            self._statistics.joined += 1
        return await flight.answer()

    async def read_at_least(self, resource: Readable, position: str) -> Answer:
        """Return an answer that has all of what a position says; it is not kept.

        Raises:
            PortolanError: There is none.
        """
        # A primary may answer this, and what it answers says nothing of the systems' present.
        wish = f"at-least={position}, max-staleness={self._keeper.delta_s:.6f}"
        self._statistics.revalidations += 1
        response = await self._get(resource.path, {"Cache-Control": "no-cache", "Prefer": wish})
        if response.status_code not in {OK, NOT_FOUND}:
            raise problem_of(response.status_code, response.content, response.headers)
        return answer_of(
            response.status_code, response.headers.get("etag"), response.content, response.headers
        )

    async def close(self) -> None:
        """Give up the requests under way."""
        await self._flights.close()

    def _need(self, resource: Readable, copy: Copy | None, *, refresh: bool) -> Need:
        """Decide who may answer (COHERENCE.md, "The client")."""
        now = self._clock()
        current = self._keeper.usable()
        if current is None:
            self._keeper.trigger()
        if current is None or refresh:
            return Need(current, now)
        document = current.document
        keys = resource.keys(document.map)
        if not keys:
            return Need(current, now)
        floor = resource.floor(self._own_writes, document.map)
        if self._is_beyond(copy, current) or any(document.contains(key) for key in keys):
            floor = max(floor, current.born)
        return Need(current, None if floor == -math.inf else floor)

    def _is_beyond(self, copy: Copy | None, current: HeldFilter) -> bool:
        """Whether the filter does not cover what was seen of a resource already.

        Then a cache on the way may hold what is older than that.
        """
        if copy is None:
            return False
        newer = copy.since > current.born and not self._is_alive(copy, current)
        return newer or copy.epoch != self._keeper.epoch

    def _is_alive(self, copy: Copy, current: HeldFilter) -> bool:
        return current.latest_us(self._clock()) < copy.expires_us

    def _will_do(self, copy: Copy, need: Need) -> bool:
        if need.filter is None or copy.epoch != self._keeper.epoch:
            return False
        in_time = need.floor is None or copy.since > need.floor
        return in_time and self._is_alive(copy, need.filter)

    async def _fetch(
        self, resource: Readable, need: Need, sent: float, copy: Copy | None
    ) -> Answer:
        epoch = self._keeper.epoch
        headers = {}
        if copy is not None and copy.status == OK and copy.etag is not None:
            headers["If-None-Match"] = copy.etag
        if need.floor is None:
            assert need.filter is not None
            self._statistics.fetches += 1
            response = await self._ask(resource, headers)
            since = need.filter.born
        else:
            self._statistics.revalidations += 1
            response = await self._ask(resource, headers | {"Cache-Control": "no-cache"})
            since = sent - unsure_s(response.headers)
        new = _copy_of(response, copy, since, epoch)
        self._copies.put(resource.path, _kept(new, response.headers))
        return answer_of(new.status, new.etag, new.body, response.headers)

    async def _ask(self, resource: Readable, headers: dict[str, str]) -> httpx.Response:
        """Ask the systems, not the primary: what bounds its age is the schema, not this client."""
        if resource.class_name in self._on_systems:
            headers |= {"Prefer": "consistency=strong"}
        response = await self._get(resource.path, headers)
        if "portolan-staleness" in response.headers and "Prefer" not in headers:
            self._on_systems.add(resource.class_name)
            return await self._ask(resource, headers)
        self._count(response)
        return response

    def _count(self, response: httpx.Response) -> None:
        self._statistics.not_modified += response.status_code == NOT_MODIFIED
        self._statistics.shared += source_of(response.headers) is Source.SHARED


def _copy_of(response: httpx.Response, old: Copy | None, since: float, epoch: int) -> Copy:
    """Return what an answer says, with the body of the copy that it confirms."""
    status, headers = response.status_code, response.headers
    end = expires_us(headers)
    if status == NOT_MODIFIED and old is not None:
        return replace(old, since=since, expires_us=end, epoch=epoch)
    if status not in {OK, NOT_FOUND}:
        raise problem_of(status, response.content, headers)
    return Copy(status, headers.get("etag"), response.content, since, end, epoch)


def _kept(copy: Copy, headers: httpx.Headers) -> Copy:
    """Return what remains of an answer: of one that no cache may keep, only when it was seen."""
    return replace(copy, etag=None, body=b"") if is_not_stored(headers) else copy
