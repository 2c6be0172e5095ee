"""Fetches, dates and renews the filter in use (docs/protocol.md, "The client")."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from sketch.client.answers import NOT_MODIFIED, OK, age_s, natural
from sketch.client.clock import MIN_US_PER_S, Clock, SketchClock
from sketch.client.connection import Get, ServiceResponse
from sketch.client.problems import BrokenFilter, PortolanError, problem_of
from sketch.client.statistics import Statistics
from sketch.protocol.wire import FilterDocument, GroupMap, WireError, decode

__all__ = ["FilterKeeper", "HeldFilter"]

_LOG = logging.getLogger(__name__)
_MEDIA_TYPE = "application/vnd.portolan.sketch"
_ANY_SOURCE: Mapping[str, str] = {}
_FROM_ORIGIN = {"Cache-Control": "no-cache"}
_PUNCTUALITY = 0.9
"""The share of the bound between two filters: timers fire late."""
_MIN_PACE_S = 0.1
_PATH = "sketch"


@dataclass(frozen=True, slots=True)
class HeldFilter:
    """A filter, and the client's times between which the sketch's clock showed its time.

    Attributes:
        document: The filter.
        tag: Its ETag.
        generated_at: When it was requested, less its age: it may have been generated that early.
        received_at: When the response with its time was received.
    """

    document: FilterDocument
    tag: str | None
    generated_at: float
    received_at: float


@dataclass(eq=False)
class FilterKeeper:
    """Keeps the latest filter.

    `_on_filter` is called for each new one, with the time before which nothing is young.

    Attributes:
        delta_s: The greatest age of a filter in use (seconds).
        epoch: Grows when filters stop covering copies that were received before: the server's
            sketch was lost, its clock was set back, or the groups of a class were changed.
        requested_at: When `refresh` last requested a filter: the keys in it were outdated then.
        sketch_clock: Bounds of the sketch's clock, from the filters.
    """

    _get: Get
    delta_s: float
    _clock: Clock
    _statistics: Statistics
    _on_filter: Callable[[float], None]
    _fetching: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _background: asyncio.Task[bool] | None = field(default=None, init=False)
    _current: HeldFilter | None = field(default=None, init=False)
    _last: HeldFilter | None = field(default=None, init=False)
    _not_before: float = field(default=-math.inf, init=False)
    requested_at: float = field(default=-math.inf, init=False)
    epoch: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.sketch_clock = SketchClock(math.ceil(self.delta_s))

    def usable(self) -> HeldFilter | None:
        """Return the filter, unless it is older than the bound."""
        current = self._current
        if current is None:
            return None
        return current if self._clock() - current.generated_at <= self.bound_s else None

    @property
    def bound_s(self) -> float:
        """The greatest usable age (seconds): Δ, or less if the filters say so."""
        last = self._last
        if last is None:
            return self.delta_s
        return min(self.delta_s, last.document.valid_for_ms / 1000)

    @property
    def pace_s(self) -> float:
        """The bound that times work in the background (seconds).

        It is at least 0.1 s, or Δ if that is less: a service whose filters are valid for no time is
        not requested without a pause.
        """
        return max(self.bound_s, min(self.delta_s, _MIN_PACE_S))

    def latest_us(self, now: float) -> float:
        """Return the latest time that the sketch's clock can show; infinity: unknown."""
        return math.inf if self._current is None else self.sketch_clock.latest_us(now)

    def groups(self) -> GroupMap:
        return {} if self._last is None else self._last.document.map

    async def refresh(self) -> None:
        """Fetch a filter generated after this call, or raise; reads use it from now on."""
        async with self._fetching:
            sent = self._clock()
            await self._fetch_and_count(sent)
            self.requested_at = sent

    async def renew(self) -> float:
        """Try to fetch a filter; return the delay until the next attempt (seconds)."""
        sent = self._clock()
        if not await self._try(sent):
            return self.pace_s / 2
        elapsed_s, pace_s = self._clock() - sent, self.pace_s
        # From request to request: the next filter has to arrive before this one is too old.
        period = max(pace_s / 2, _PUNCTUALITY * pace_s - 2 * elapsed_s)
        return max(0.0, period - elapsed_s)

    def trigger(self) -> None:
        """Start to fetch a filter in the background, unless a fetch is under way or just failed."""
        sent = self._clock()
        if self._fetching.locked() or sent < self._not_before:
            return
        if self._background is None or self._background.done():
            self._background = asyncio.create_task(self._try(sent))

    async def close(self) -> None:
        if self._background is not None:
            self._background.cancel()
            await asyncio.wait([self._background])

    async def _try(self, sent: float) -> bool:
        try:
            async with self._fetching:
                await self._fetch_and_count(sent)
        except PortolanError as error:
            _LOG.info("No filter, reads go to the origin: %s", error)
            self._not_before = sent + self.pace_s / 2
            return False
        return True

    async def _fetch_and_count(self, sent: float) -> None:
        try:
            await self._fetch(sent)
        except PortolanError:
            self._statistics.filter_failures += 1
            raise
        self._statistics.filter_refreshes += 1

    async def _fetch(self, sent: float) -> None:
        new = await self._request(sent)
        if self._is_older(new):
            # Either a cache has stored it, or the sketch's clock was set back. A filter that the
            # origin generates from now on is as young as its request, whatever its time, and its
            # time advances, while a cache that ignores `no-cache` repeats the stored one.
            refused_us = new.document.snapshot.time_us
            new = await self._request(self._clock(), _FROM_ORIGIN)
            if self._is_older(new) and new.document.snapshot.time_us <= refused_us:
                raise BrokenFilter("the filter is older than the previous one")
        self._adopt(new)

    async def _request(self, sent: float, extra: Mapping[str, str] = _ANY_SOURCE) -> HeldFilter:
        current = self._current
        headers = {"Accept": _MEDIA_TYPE, **extra}
        if current is not None and current.tag is not None:
            headers["If-None-Match"] = current.tag
        response = await self._get(_PATH, headers)
        received_at, generated_at = self._clock(), sent - age_s(response.headers)
        if response.status == NOT_MODIFIED and current is not None:
            self._statistics.filter_not_modified += 1
            document = _confirm(current.document, response)
            return HeldFilter(document, current.tag, generated_at, received_at)
        if response.status == OK:
            tag = response.headers.get("etag")
            return HeldFilter(self._read(response), tag, generated_at, received_at)
        raise problem_of(response.status, response.content, response.headers)

    def _is_older(self, new: HeldFilter) -> bool:
        """Whether a filter shows an earlier time than the last one of the same sketch."""
        last = self._last
        if last is None or new.document.snapshot.generation != last.document.snapshot.generation:
            return False
        return new.document.snapshot.time_us < last.document.snapshot.time_us

    def _is_of_another_clock(self, new: HeldFilter, last: HeldFilter) -> bool:
        """Whether the sketch was lost, or its clock was set back since the last filter.

        A clock that was set back gained less than the elapsed time, even if it is ahead again.
        """
        if new.document.snapshot.generation != last.document.snapshot.generation:
            return True
        passed_s = max(0.0, new.generated_at - last.received_at)
        return (
            new.document.snapshot.time_us < last.document.snapshot.time_us + passed_s * MIN_US_PER_S
        )

    def _read(self, response: ServiceResponse) -> FilterDocument:
        try:
            return decode(response.content)
        except WireError as error:
            # The fault is unknown, so the filter in use is no longer trusted.
            self._current = None
            raise BrokenFilter(str(error)) from error

    def _adopt(self, new: HeldFilter) -> None:
        last, document = self._last, new.document
        if last is not None and self._is_of_another_clock(new, last):
            # It would revive copies whose keys have left the filter, so it does not cover copies
            # that were received before.
            self.epoch += 1
            self.sketch_clock.reset()
        elif last is not None:
            self.epoch += document.map != last.document.map
        self._current = self._last = new
        self.sketch_clock.note(new.generated_at, document.snapshot.time_us)
        self._on_filter(new.generated_at - self.delta_s)


def _confirm(document: FilterDocument, response: ServiceResponse) -> FilterDocument:
    """Return a filter as of the time of a 304: its bits were current then."""
    time_us = natural(response.headers.get("portolan-sketch-time", ""))
    if time_us is None:
        raise BrokenFilter("a 304 has no time")
    try:
        return replace(document, snapshot=replace(document.snapshot, time_us=time_us))
    except WireError as error:
        raise BrokenFilter(str(error)) from error
