"""Answers reads from the client's copy, from any cache on the way, or from the origin.

An object in the filter has to come from the origin, or to be young enough. Many clients then read
the same objects separately, though one response would serve them all. Dated responses therefore
show the time of the sketch's clock at which they were current (`Portolan-As-Of`). Caches store them
briefly under separate addresses (``max_age``), so that only clients that check the date get them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from sketch.client.answers import (
    NOT_FOUND,
    NOT_MODIFIED,
    OK,
    SERVER_ERROR,
    ReadAnswer,
    Source,
    answer_of,
    as_of_us,
    expires_us,
    is_not_stored,
    source_of,
    uncertainty_s,
)
from sketch.client.clock import Clock
from sketch.client.connection import Get, ServiceResponse
from sketch.client.copies import NO_TTL, Copies, Copy
from sketch.client.filters import FilterKeeper, HeldFilter
from sketch.client.flights import FetchResult, Flight, Flights, Need
from sketch.client.own_writes import OwnWrites
from sketch.client.problems import problem_of
from sketch.client.renewing import Demand
from sketch.client.resources import Readable
from sketch.client.statistics import Statistics

__all__ = ["CachedReader", "DatedReads"]

_FROM_ORIGIN: Final = {"Cache-Control": "no-cache"}

_UNDATED_S = 60.0
"""For how long the responses of a class count as undated."""


@dataclass(eq=False)
class DatedReads:
    """Reads objects whose responses may come from any cache, and show their age."""

    _get: Get
    _keeper: FilterKeeper
    _clock: Clock
    _undated_until: dict[str, float] = field(default_factory=dict, init=False)

    def path(self, resource: Readable, need: Need) -> str | None:
        """Return an address at which a cache may have a usable response; None: it is unlikely.

        A cached response is half as old as caches keep it, on average.
        """
        now, bound_s = self._clock(), self._keeper.bound_s
        if now - need.young < bound_s / 2 or not self._keeper.sketch_clock.is_known(now):
            return None
        if now < self._undated_until.get(resource.class_name, -math.inf):
            return None
        return resource.dated_path(math.ceil(bound_s))

    async def read(
        self, class_name: str, path: str, need: Need, condition: Mapping[str, str]
    ) -> tuple[ServiceResponse, float] | None:
        """Return a response, and a time at which it was current; None: the class has no dates.

        `condition` is If-None-Match, if the client has a copy. Raises `Unreachable`.
        """
        response = await self._get(path, condition)
        if (shown_us := as_of_us(response.headers)) is None:
            if response.status < SERVER_ERROR:
                self._undated_until[class_name] = self._clock() + _UNDATED_S
            return None
        since = self._keeper.sketch_clock.not_before(shown_us, self._clock())
        if need.is_met(since, response.headers.get("etag")):
            return response, since
        # Without a condition: a cache stores only whole responses, which also serve other clients.
        sent = self._clock()
        response = await self._get(path, _FROM_ORIGIN)
        return response, sent - uncertainty_s(response.headers)


@dataclass(eq=False)
class CachedReader:
    """Answers reads within the bound; `_demand` counts reads allowed only by the age of a copy."""

    _get: Get
    _keeper: FilterKeeper
    _own_writes: OwnWrites
    _copies: Copies
    _clock: Clock
    _statistics: Statistics
    _demand: Demand | None
    _flights: Flights = field(default_factory=Flights, init=False)
    _on_systems: set[str] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self._dated = DatedReads(self._get_and_count, self._keeper, self._clock)

    async def read(self, resource: Readable, *, refresh: bool) -> ReadAnswer:
        """Return a response within the bound; `refresh`: as of now, whatever the filter says."""
        address = resource.path
        copy = self._copies.get(address)
        need = self._need(resource, copy, refresh=refresh)
        if copy is not None and copy.body is not None:
            if self._demand is not None and not (need.covered or refresh):
                self._demand.note(address, resource)
            if self._satisfies(copy, need):
                self._statistics.hits += 1
                return ReadAnswer(copy.status, copy.etag, copy.body, Source.OWN)
        # A dated response shows only on arrival whether it is young enough.
        while (flight := self._flights.find(address, need)) is not None:
            self._statistics.joined += 1
            result = await flight.wait()
            if need.is_met(result.since, result.answer.etag):
                return result.answer
            copy = self._copies.get(address)
        return (await self._start(resource, need, copy).wait()).answer

    def revalidate(self, resource: Readable) -> None:
        """Start a request for which no read waits yet."""
        copy = self._copies.get(resource.path)
        need = self._need(resource, copy, refresh=False)
        if self._flights.find(resource.path, need) is None:
            self._start(resource, need, copy)

    def _start(self, resource: Readable, need: Need, copy: Copy | None) -> Flight:
        sent = self._clock()
        dated_path = None if need.floor is None else self._dated.path(resource, need)
        fetch = self._fetch(resource, need, sent, copy, dated_path)
        return self._flights.start(
            resource.path, need, sent, fetch, is_dated=dated_path is not None
        )

    def written(self, resource: Readable, response: ServiceResponse, sent: float) -> None:
        """Store the whole object from a write's response: at most as old as the write's request."""
        etag = response.headers.get("etag")
        is_whole = "return=representation" in response.headers.get("preference-applied", "")
        if is_whole and etag is not None and resource.keys(self._keeper.groups()):
            now, epoch = self._clock(), self._keeper.epoch
            # Without a TTL: the sketch has not recorded it, so no filter needs to contain it.
            copy = Copy(OK, etag, response.content, sent, now, now, NO_TTL, epoch)
            self._copies.put(resource.path, copy)

    async def read_at_least(self, resource: Readable, position: str) -> ReadAnswer:
        """Return a response that has reached a position; it is not stored."""
        # A view may answer this, and its response shows nothing of the systems' current state.
        preference = f"at-least={position}, max-staleness={self._keeper.delta_s:.6f}"
        self._statistics.revalidations += 1
        response = await self._get(resource.path, _FROM_ORIGIN | {"Prefer": preference})
        if response.status not in {OK, NOT_FOUND}:
            raise problem_of(response.status, response.content, response.headers)
        return answer_of(response)

    async def close(self) -> None:
        await self._flights.close()

    def _need(self, resource: Readable, copy: Copy | None, *, refresh: bool) -> Need:
        """Decide who may answer (docs/protocol.md, "The client").

        A response that was current Δ ago is within the bound, whatever its source and whatever the
        filters contain.
        """
        now = self._clock()
        current = self._keeper.usable()
        if current is None:
            self._keeper.trigger()
        if refresh:
            return Need(current, now, now)
        fresh = max(now - self._keeper.bound_s, self._keeper.requested_at)
        own_floor = self._own_writes.floor(resource)
        # A response requested before the copy arrived may be older than the copy.
        floor = max(own_floor, fresh, -math.inf if copy is None else copy.received)
        copy_tag = None if copy is None else copy.etag
        if current is None:
            return Need(None, floor, fresh, own_floor, copy_tag=copy_tag)
        document = current.document
        keys = resource.keys(document.map)
        # A class or field that the filter's map lacks cannot be tested: only the origin knows.
        if not keys:
            return Need(current, now, now)
        if any(document.contains(key) for key in keys):
            return Need(current, floor, fresh, own_floor, copy_tag=copy_tag)
        if self._is_beyond(copy, current):
            return Need(
                current, max(floor, current.generated_at), fresh, own_floor, copy_tag=copy_tag
            )
        return Need(
            current,
            own_floor if own_floor >= current.generated_at else None,
            fresh,
            own_floor,
            covered=True,
        )

    def _is_beyond(self, copy: Copy | None, current: HeldFilter) -> bool:
        """Whether the filter does not cover a state of the resource that the client has seen.

        Then a cache on the way may hold an older one.
        """
        if copy is None:
            return False
        newer = copy.received > current.generated_at and not self._is_live(copy)
        return newer or copy.epoch != self._keeper.epoch

    def _is_live(self, copy: Copy) -> bool:
        return self._keeper.latest_us(self._clock()) < copy.expires_us

    def _satisfies(self, copy: Copy, need: Need) -> bool:
        if copy.knows <= need.own_floor:
            return False
        if copy.since > need.fresh and copy.expires_us == NO_TTL:
            return True
        return (copy.since > need.fresh or need.covered) and self._is_live(copy)

    async def _fetch(
        self, resource: Readable, need: Need, sent: float, copy: Copy | None, dated_path: str | None
    ) -> FetchResult:
        epoch = self._keeper.epoch
        condition = {}
        if copy is not None and copy.body is not None and copy.status == OK and copy.etag:
            condition["If-None-Match"] = copy.etag
        if need.floor is None:
            assert need.filter is not None
            response = await self._request(resource, condition)
            # Any cache may have answered: it is only as young as the filter that allowed it.
            return self._land(resource, response, need.filter.generated_at, copy, epoch)
        if dated_path is not None:
            dated_response = await self._dated.read(
                resource.class_name, dated_path, need, condition
            )
            if dated_response is not None:
                return self._land(resource, *dated_response, copy)
        response = await self._request(resource, condition | _FROM_ORIGIN)
        since = sent - uncertainty_s(response.headers)
        return self._land(resource, response, since, copy, epoch)._replace(since=sent)

    async def _request(self, resource: Readable, headers: dict[str, str]) -> ServiceResponse:
        """Request from the systems, not the view, whose age the schema bounds instead of Δ."""
        if resource.class_name in self._on_systems:
            headers |= {"Prefer": "consistency=strong"}
        response = await self._get_and_count(resource.path, headers)
        if "portolan-staleness" in response.headers and "Prefer" not in headers:
            self._on_systems.add(resource.class_name)
            return await self._request(resource, headers)
        return response

    async def _get_and_count(self, path: str, headers: Mapping[str, str]) -> ServiceResponse:
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
        response: ServiceResponse,
        since: float,
        old: Copy | None,
        epoch: int | None = None,
    ) -> FetchResult:
        """Return a response, and store it as far as its header fields allow.

        A `no-store` response leaves a trace. If it confirms a copy, that copy is as fresh as the
        response; but filters no longer need to contain it.

        Args:
            resource: What was read.
            response: The response.
            since: A time at which it was current.
            old: The client's copy when it was requested.
            epoch: The filters' epoch at the request; None: it is dated, without an expiry that they
                cover.
        """
        status, headers, now = response.status, response.headers, self._clock()
        if status == NOT_MODIFIED and old is not None and old.body is not None:
            confirmation = answer_of(response)
            answer = replace(confirmation, status=old.status, etag=old.etag, body=old.body)
            copy = _confirm(old, headers, epoch)
            copy = replace(copy, since=since, knows=since, received=now)
        elif status in {OK, NOT_FOUND}:
            answer = answer_of(response)
            body = None if is_not_stored(headers) else response.content
            expiry_us = NO_TTL if epoch is None else expires_us(headers)
            copy_epoch = self._keeper.epoch if epoch is None else epoch
            copy = Copy(status, answer.etag, body, since, since, now, expiry_us, copy_epoch)
        else:
            raise problem_of(status, response.content, response.headers)
        self._copies.put(resource.path, copy)
        return FetchResult(answer, since)


def _confirm(old: Copy, headers: Mapping[str, str], epoch: int | None) -> Copy:
    if epoch is None:
        return old  # The expiry and the filters that cover it stay the same.
    # `no-store`: no filter needs to contain it, so the TTL ends; 0 stays "not to be returned".
    expiry_us = min(old.expires_us, NO_TTL) if is_not_stored(headers) else expires_us(headers)
    return replace(old, expires_us=expiry_us, epoch=epoch)
