"""The filter in use: fetched, aged, renewed (docs/protocol.md, "The client")."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from sketch.client.answers import NOT_MODIFIED, OK, age_s
from sketch.client.clock import Clock, SketchClock
from sketch.client.connection import Get, Response
from sketch.client.problems import BrokenFilter, PortolanError, problem_of
from sketch.client.statistics import Statistics
from sketch.protocol.wire import ClientFilter, GroupMap, WireError, decode

__all__ = ["FilterKeeper", "HeldFilter"]

_LOG = logging.getLogger(__name__)
_MEDIA_TYPE = "application/vnd.portolan.sketch"
_PUNCTUALITY = 0.9
"""Of the time between two filters: timers come late."""
_PATH = "sketch"


@dataclass(frozen=True, slots=True)
class HeldFilter:
    """A filter, with its entity tag, if it has one.

    Attributes:
        born: The earliest time, by the client's clock, at which it can have been generated.
    """

    document: ClientFilter
    tag: str | None
    born: float


class FilterKeeper:
    """Keeps the latest filter.

    Args:
        get: Sends requests.
        delta_s: The oldest filter that is used (seconds).
        clock: The client's clock.
        statistics: Where to count.
        on_filter: Called with each new filter: from before which time nothing is young any more,
            and whether it is of another epoch.

    Attributes:
        epoch: Grows when copies that were received before are covered by filters no more: the
            server's sketch was lost, or the groups of a class were changed.
        requested_at: When a filter was last requested on purpose: what it names was outdated then.
        sketch_clock: What filters say of the sketch's time.
    """

    def __init__(
        self,
        get: Get,
        delta_s: float,
        clock: Clock,
        statistics: Statistics,
        on_filter: Callable[[float, bool], None],
    ) -> None:
        self._get = get
        self.delta_s = delta_s
        self._clock = clock
        self._statistics = statistics
        self._on_filter = on_filter
        self._fetching = asyncio.Lock()
        self._background: asyncio.Task[bool] | None = None
        self._current: HeldFilter | None = None
        self._last: ClientFilter | None = None
        self._not_before = -math.inf
        self.sketch_clock = SketchClock(math.ceil(delta_s))
        self.requested_at = -math.inf
        self.epoch = 0

    def usable(self) -> HeldFilter | None:
        """Return the filter, unless it is too old to go by."""
        current = self._current
        if current is None:
            return None
        return current if self._clock() - current.born <= self.bound_s else None

    @property
    def bound_s(self) -> float:
        """How old what is gone by may be (seconds): the bound, or less if filters say so."""
        last = self._last
        return self.delta_s if last is None else min(self.delta_s, last.valid_for_ms / 1000)

    def latest_us(self, now: float) -> float:
        """Return the latest time that the sketch's clock can show; infinity: unknown."""
        return math.inf if self._current is None else self.sketch_clock.latest_us(now)

    def groups(self) -> GroupMap:
        """Return the groups of each class, as far as they are known."""
        return {} if self._last is None else self._last.map

    async def refresh(self) -> None:
        """Get a filter that is generated after this call, or raise; it is heeded from now on."""
        async with self._fetching:
            sent = self._clock()
            await self._counted(sent)
            self.requested_at = sent

    async def renew(self) -> float:
        """Get a filter, if one is to be had; return after how many seconds to do so again."""
        sent = self._clock()
        if not await self._try(sent):
            return self.delta_s / 2
        took = self._clock() - sent
        period = max(self.delta_s / 2, _PUNCTUALITY * self.delta_s - 2 * took)
        return max(0.0, period - took)

    def trigger(self) -> None:
        """Begin to get a filter in the background, unless that is under way or failed just now."""
        sent = self._clock()
        if self._fetching.locked() or sent < self._not_before:
            return
        if self._background is None or self._background.done():
            self._background = asyncio.create_task(self._try(sent))

    async def close(self) -> None:
        """End what is under way."""
        if self._background is not None:
            self._background.cancel()
            await asyncio.wait([self._background])

    async def _try(self, sent: float) -> bool:
        try:
            async with self._fetching:
                await self._counted(sent)
        except PortolanError as error:
            _LOG.info("No filter, reads go to the origin: %s", error)
            self._not_before = sent + self.delta_s / 2
            return False
        return True

    async def _counted(self, sent: float) -> None:
        try:
            await self._fetch(sent)
        except PortolanError:
            self._statistics.filter_failures += 1
            raise
        self._statistics.filter_refreshes += 1

    async def _fetch(self, sent: float) -> None:
        current = self._current
        headers = {"Accept": _MEDIA_TYPE}
        if current is not None and current.tag is not None:
            headers["If-None-Match"] = current.tag
        response = await self._get(_PATH, headers)
        born = sent - age_s(response.headers)
        if response.status == NOT_MODIFIED and current is not None:
            self._statistics.filter_not_modified += 1
            self._adopt(_renewed(current, response, born))
        elif response.status == OK:
            self._adopt(HeldFilter(self._read(response), response.headers.get("etag"), born))
        else:
            raise problem_of(response.status, response.content, response.headers)

    def _read(self, response: Response) -> ClientFilter:
        """Read a filter; the one in use counts no more if that fails: what is wrong is unknown."""
        try:
            return decode(response.content)
        except WireError as error:
            self._current = None
            raise BrokenFilter(str(error)) from error

    def _adopt(self, new: HeldFilter) -> None:
        last, document, before = self._last, new.document, self.epoch
        if last is not None and document.generation == last.generation:
            if document.time_us < last.time_us:
                raise BrokenFilter("a filter came that is older than the one before")
            self.epoch += document.map != last.map
        elif last is not None:
            self.epoch += 1
            self.sketch_clock.begin_anew()
        self._current = new
        self._last = document
        self.sketch_clock.note(new.born, document.time_us)
        self._on_filter(new.born - self.delta_s, self.epoch != before)


def _renewed(current: HeldFilter, response: Response, born: float) -> HeldFilter:
    """Return the filter as a 304 confirms it: these bits held at the time it gives."""
    time = response.headers.get("portolan-sketch-time", "")
    if not (time.isascii() and time.isdigit()):
        raise BrokenFilter("a 304 has no time")
    return replace(current, document=replace(current.document, time_us=int(time)), born=born)
