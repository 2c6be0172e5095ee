"""Dated answers: any cache may keep them for a moment, and who reads them judges their age.

What a filter names has to come from the origin, or to be young enough. Many clients ask for the
same objects then, each for itself, though one answer would do for all of them. A dated answer says
at which time it was true, by the sketch's clock (`Portolan-As-Of`). Caches keep it under an address
of its own (``max_age``), so that nobody gets it who does not look at its date.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from sketch.client.answers import SERVER_ERROR, as_of_us, uncertainty_s
from sketch.client.clock import Clock
from sketch.client.connection import Get, Response
from sketch.client.filters import FilterKeeper
from sketch.client.flights import Need
from sketch.client.resources import Readable

__all__ = ["DatedReads"]

_UNDATED_S = 60.0
"""For how long a class is taken for one whose answers have no date."""


class DatedReads:
    """Reads objects whose answers may come from any cache, and tell their age.

    Args:
        get: Sends requests.
        keeper: Has the filters, and so the time.
        clock: The client's clock.
    """

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
        if now - need.young < bound_s / 2 or not self._keeper.sketch_clock.tells(now):
            return None
        if now < self._undated_until.get(resource.class_name, -math.inf):
            return None
        return resource.dated_path(math.ceil(bound_s))

    async def read(
        self, class_name: str, path: str, need: Need, known: Mapping[str, str]
    ) -> tuple[Response, float] | None:
        """Return an answer, and a time at which it was true; None: the class's have no date.

        Args:
            class_name: Class of the object.
            path: Where dated answers are.
            need: What the answer must satisfy.
            known: If-None-Match, if the client has a copy.

        Raises:
            Unreachable: There was no answer.
        """
        response = await self._get(path, known)
        if (as_of_shown_us := as_of_us(response.headers)) is None:
            if response.status < SERVER_ERROR:
                self._undated_until[class_name] = self._clock() + _UNDATED_S
            return None
        since = self._keeper.sketch_clock.not_before(as_of_shown_us, self._clock())
        if need.is_met(since, response.headers.get("etag")):
            return response, since
        # Without a condition: a cache keeps whole answers only, for others who ask.
        sent = self._clock()
        response = await self._get(path, {"Cache-Control": "no-cache"})
        return response, sent - uncertainty_s(response.headers)
