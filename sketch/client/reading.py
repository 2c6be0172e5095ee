"""How a read is answered: from the client's copy, by any cache on the way, or by the origin.

What a filter names has to come from the origin, or to be young enough. Many clients read the same
objects then, each for itself, though one answer would do for all of them. So there are dated
answers, which show at which time they were true by the sketch's clock (`Portolan-As-Of`). Caches
keep them for a moment, under an address of their own (``max_age``), so that only those who look at
the date get them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from sketch.client.answers import (
    NOT_FOUND,
    NOT_MODIFIED,
    OK,
    SERVER_ERROR,
    Answer,
    Source,
    answer_of,
    as_of_us,
    expires_us,
    is_not_stored,
    source_of,
    uncertainty_s,
)
from sketch.client.clock import Clock
from sketch.client.connection import Get, Response
from sketch.client.copies import NO_TTL, Copies, Copy
from sketch.client.filters import FilterKeeper, HeldFilter
from sketch.client.flights import FetchResult, Flight, Flights, Need
from sketch.client.own_writes import OwnWrites
from sketch.client.problems import problem_of
from sketch.client.renewing import Demand
from sketch.client.resources import Readable
from sketch.client.statistics import Statistics

__all__ = ["DatedReads", "Reader"]

_FROM_ORIGIN: Final = {"Cache-Control": "no-cache"}


_UNDATED_S = 60.0
"""For how long a class is taken for one whose answers have no date."""


class DatedReads:
    """Reads objects whose answers may come from any cache, and show their age."""

    def __init__(self, get: Get, keeper: FilterKeeper, clock: Clock) -> None:
        self._get = get
        self._keeper = keeper
        self._clock = clock
        self._undated_until: dict[str, float] = {}

    def path(self, resource: Readable, need: Need) -> str | None:
        """Return where a cache may have an answer that will do; None: it is unlikely.

        What caches have is half as old as they keep it, on the average.
        """
        now, bound_s = self._clock(), self._keeper.bound_s
        if now - need.young < bound_s / 2 or not self._keeper.sketch_clock.is_known(now):
            return None
        if now < self._undated_until.get(resource.class_name, -math.inf):
            return None
        return resource.dated_path(math.ceil(bound_s))

    async def read(
        self, class_name: str, path: str, need: Need, known: Mapping[str, str]
    ) -> tuple[Response, float] | None:
        """Return an answer, and a time at which it was true; None: the class's have no date.

        `known` is If-None-Match, if the client has a copy. Raises `Unreachable`.
        """
        response = await self._get(path, known)
        if (shown_us := as_of_us(response.headers)) is None:
            if response.status < SERVER_ERROR:
                self._undated_until[class_name] = self._clock() + _UNDATED_S
            return None
        since = self._keeper.sketch_clock.not_before(shown_us, self._clock())
        if need.is_met(since, response.headers.get("etag")):
            return response, since
        # Without a condition: a cache stores only whole answers, which serve other clients, too.
        sent = self._clock()
        response = await self._get(path, {"Cache-Control": "no-cache"})
        return response, sent - uncertainty_s(response.headers)


class Reader:
    """Answers reads within the bound; `demand` notes what is read by its youth alone."""

    def __init__(
        self,
        get: Get,
        keeper: FilterKeeper,
        own_writes: OwnWrites,
        copies: Copies,
        clock: Clock,
        statistics: Statistics,
        demand: Demand | None = None,
    ) -> None:
        self._get = get
        self._keeper = keeper
        self._own_writes = own_writes
        self._copies = copies
        self._clock = clock
        self._statistics = statistics
        self._demand = demand
        self._dated = DatedReads(self._counted, keeper, clock)
        self._flights = Flights()
        self._on_systems: set[str] = set()

    async def read(self, resource: Readable, *, refresh: bool) -> Answer:
        """Return an answer within the bound; `refresh`: as it is now, whatever the filter says."""
        address = resource.path
        copy = self._copies.get(address)
        need = self._need(resource, copy, refresh=refresh)
        if copy is not None and copy.body is not None:
            if self._demand is not None and not (need.covered or refresh):
                self._demand.note(address, resource)
            if self._will_do(copy, need):
                self._statistics.hits += 1
                return Answer(copy.status, copy.etag, copy.body, Source.OWN)
        while (flight := self._flights.find(address, need)) is not None:
            self._statistics.joined += 1
            landed = await flight.landed()
            if need.is_met(landed.since, landed.answer.etag):
                return landed.answer
            copy = self._copies.get(address)
        return (await self._start(resource, need, copy).landed()).answer

    def revalidate(self, resource: Readable) -> None:
        """Request a resource anew, though no read waits for it yet."""
        copy = self._copies.get(resource.path)
        need = self._need(resource, copy, refresh=False)
        if self._flights.find(resource.path, need) is None:
            self._start(resource, need, copy)

    def _start(self, resource: Readable, need: Need, copy: Copy | None) -> Flight:
        sent = self._clock()
        dated = None if need.floor is None else self._dated.path(resource, need)
        fetch = self._fetch(resource, need, sent, copy, dated)
        return self._flights.start(resource.path, need, sent, fetch, is_dated=dated is not None)

    def written(self, resource: Readable, response: Response, sent: float) -> None:
        """Keep the whole object that a write has answered: as old as the write's request at most.

        No filter was promised to name it; it is good for as long as it is fresh.

        Args:
            resource: The object.
            response: The answer.
            sent: When the write was sent, by the client's clock.
        """
        etag = response.headers.get("etag")
        whole = "return=representation" in response.headers.get("preference-applied", "")
        if whole and etag is not None and resource.keys(self._keeper.groups()):
            now, epoch = self._clock(), self._keeper.epoch
            copy = Copy(OK, etag, response.content, sent, now, now, NO_TTL, epoch)
            self._copies.put(resource.path, copy)

    async def read_at_least(self, resource: Readable, position: str) -> Answer:
        """Return an answer that has all of what a position says; it is not kept."""
        # A view may answer this, and what it answers says nothing of the systems' present.
        wish = f"at-least={position}, max-staleness={self._keeper.delta_s:.6f}"
        self._statistics.revalidations += 1
        response = await self._get(resource.path, {"Cache-Control": "no-cache", "Prefer": wish})
        if response.status not in {OK, NOT_FOUND}:
            raise problem_of(response.status, response.content, response.headers)
        return answer_of(
            response.status, response.headers.get("etag"), response.content, response.headers
        )

    async def close(self) -> None:
        """Give up the requests under way."""
        await self._flights.close()

    def _need(self, resource: Readable, copy: Copy | None, *, refresh: bool) -> Need:
        """Decide who may answer (docs/protocol.md, "The client").

        What was not outdated Δ ago is within the bound, from any source, and whatever filters say.
        """
        now = self._clock()
        current = self._keeper.usable()
        if current is None:
            self._keeper.trigger()
        if refresh:
            return Need(current, now, now)
        fresh = max(now - self._keeper.bound_s, self._keeper.requested_at)
        own = self._own_writes.floor(resource, self._keeper.groups())
        # What was requested before the copy came may be older than that.
        floor = max(own, fresh, -math.inf if copy is None else copy.received)
        seen = None if copy is None else copy.etag
        if current is None:
            return Need(None, floor, fresh, own, seen=seen)
        document = current.document
        keys = resource.keys(document.map)
        if not keys:
            return Need(current, now, now)
        if any(document.contains(key) for key in keys):
            return Need(current, floor, fresh, own, seen=seen)
        if self._is_beyond(copy, current):
            return Need(current, max(floor, current.born), fresh, own, seen=seen)
        return Need(current, own if own >= current.born else None, fresh, own, covered=True)

    def _is_beyond(self, copy: Copy | None, current: HeldFilter) -> bool:
        """Whether the filter does not cover what was seen of a resource already.

        Then a cache on the way may hold what is older than that.
        """
        if copy is None:
            return False
        newer = copy.received > current.born and not self._is_live(copy)
        return newer or copy.epoch != self._keeper.epoch

    def _is_live(self, copy: Copy) -> bool:
        return self._keeper.latest_us(self._clock()) < copy.expires_us

    def _will_do(self, copy: Copy, need: Need) -> bool:
        if copy.knows <= need.own:
            return False
        if copy.since > need.fresh and copy.expires_us == NO_TTL:
            return True
        return (copy.since > need.fresh or need.covered) and self._is_live(copy)

    async def _fetch(
        self, resource: Readable, need: Need, sent: float, copy: Copy | None, dated: str | None
    ) -> FetchResult:
        epoch = self._keeper.epoch
        known = {}
        if copy is not None and copy.body is not None and copy.status == OK and copy.etag:
            known["If-None-Match"] = copy.etag
        if need.floor is None:
            assert need.filter is not None
            response = await self._ask(resource, known)
            return self._land(resource, response, need.filter.born, copy, epoch)
        if dated is not None:
            found = await self._dated.read(resource.class_name, dated, need, known)
            if found is not None:
                return self._land(resource, *found, copy)
        response = await self._ask(resource, known | _FROM_ORIGIN)
        since = sent - uncertainty_s(response.headers)
        return replace(self._land(resource, response, since, copy, epoch), since=sent)

    async def _ask(self, resource: Readable, headers: dict[str, str]) -> Response:
        """Request from the systems, not the view: the schema bounds its age, not this client."""
        if resource.class_name in self._on_systems:
            headers |= {"Prefer": "consistency=strong"}
        response = await self._counted(resource.path, headers)
        if "portolan-staleness" in response.headers and "Prefer" not in headers:
            self._on_systems.add(resource.class_name)
            return await self._ask(resource, headers)
        return response

    async def _counted(self, path: str, headers: Mapping[str, str]) -> Response:
        response = await self._get(path, headers)
        statistics = self._statistics
        statistics.revalidations += "Cache-Control" in headers
        statistics.fetches += "Cache-Control" not in headers
        statistics.not_modified += response.status == NOT_MODIFIED
        statistics.shared += source_of(response.headers) is Source.SHARED
        return response

    def _land(
        self,
        resource: Readable,
        response: Response,
        since: float,
        old: Copy | None,
        epoch: int | None = None,
    ) -> FetchResult:
        """Keep what may be kept of an answer, and return it.

        An answer that no cache may keep leaves a trace. If it confirms a copy, that was kept before
        it and is as fresh as the answer; but filters need not name it any more.

        Args:
            resource: What was read.
            response: The answer.
            since: A time at which it was true.
            old: The client's copy, when it was requested.
            epoch: Of the filters then; None: it is dated, and has no expiry that they know of.
        """
        status, headers, now = response.status, response.headers, self._clock()
        if status == NOT_MODIFIED and old is not None and old.body is not None:
            answer = answer_of(old.status, old.etag, old.body, headers)
            kept = _confirmed(old, headers, epoch)
            kept = replace(kept, since=since, knows=since, received=now)
        elif status in {OK, NOT_FOUND}:
            answer = answer_of(status, headers.get("etag"), response.content, headers)
            body = None if is_not_stored(headers) else response.content
            end = NO_TTL if epoch is None else expires_us(headers)
            of = self._keeper.epoch if epoch is None else epoch
            kept = Copy(status, answer.etag, body, since, since, now, end, of)
        else:
            raise problem_of(status, response.content, response.headers)
        self._copies.put(resource.path, kept)
        return FetchResult(answer, since)


def _confirmed(old: Copy, headers: Mapping[str, str], epoch: int | None) -> Copy:
    """Return a copy with the expiry that it has by an answer that confirms it."""
    if epoch is None:
        return old  # It expires as it was promised, under the filters it was promised by.
    end = min(old.expires_us, NO_TTL) if is_not_stored(headers) else expires_us(headers)
    return replace(old, expires_us=end, epoch=epoch)
