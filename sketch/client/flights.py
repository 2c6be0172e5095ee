"""Requests under way, shared by the reads that they are fresh enough for."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from sketch.client.answers import Answer
from sketch.client.copies import is_newer
from sketch.client.filters import HeldFilter
from sketch.client.problems import Closed

__all__ = ["Flight", "Flights", "Need"]


@dataclass(frozen=True, slots=True)
class Need:
    """What the answer to a read must satisfy.

    Attributes:
        filter: The filter that the read goes by; None if there is none to go by.
        floor: The answer must be the origin's, to a request sent after this time; None: any
            cache on the way may answer.
        fresh: What was not outdated at this time, or later, is within the bound by that alone.
        own: What this client had written until then must be in the answer.
        covered: Whether the filter answers for copies that it covers.
        seen: The tag of what the client has; None if it has nothing, or that has no tag.
    """

    filter: HeldFilter | None
    floor: float | None
    fresh: float
    own: float = -math.inf
    covered: bool = False
    seen: str | None = None

    @property
    def young(self) -> float:
        """What was true after this time is within the bound, and knows of own writes."""
        return max(self.own, self.fresh)

    def is_met(self, since: float, tag: str | None) -> bool:
        """Whether an answer will do that was true at a time, and has a tag."""
        if self.floor is None:
            return self.filter is not None and since >= self.filter.born
        if since > self.floor:
            return True
        return since > self.young and is_newer(tag, self.seen) is True


@dataclass(frozen=True, slots=True)
class FetchResult:
    """The result of a request.

    Attributes:
        answer: The answer.
        since: A time at which it was true; of one that the origin was to give, when it was sent.
    """

    answer: Answer
    since: float


class Flight:
    """One request under way.

    Args:
        need: What it was sent for.
        sent: When, by the client's clock.
        task: Returns its answer.
        is_dated: Whether only the answer will show how old it is.
    """

    def __init__(
        self, need: Need, sent: float, task: asyncio.Task[FetchResult], *, is_dated: bool
    ) -> None:
        self.need = need
        self.sent = sent
        self.task = task
        self._is_dated = is_dated
        self._waiting = 0

    def serves(self, need: Need) -> bool:
        """Whether its answer will do for another read; of a dated one, whether it may.

        What any cache may answer serves the reads by the same filter. What the origin answers
        serves each read that goes by a filter, or needs an answer, from before it was sent: a read
        never joins a request that is older than what it needs (docs/protocol.md).
        """
        if self.task.cancelling():
            return False
        if self._is_dated:
            return need.floor is not None and not self.task.done()
        if self.need.floor is None:
            return need.floor is None and need.filter is self.need.filter
        if need.floor is None:
            return need.filter is not None and self.sent > need.filter.born
        return self.sent > need.floor

    async def landed(self) -> FetchResult:
        """Wait for the answer; a request that no read waits for any more is given up.

        Raises:
            Closed: The client was closed meanwhile.
        """
        self._waiting += 1
        try:
            return await asyncio.shield(self.task)
        except asyncio.CancelledError as error:
            reader = asyncio.current_task()
            if reader is not None and reader.cancelling():
                raise
            raise Closed("the client was closed") from error
        finally:
            self._waiting -= 1
            if not self._waiting:
                self.task.cancel()


class Flights:
    """The latest request under way for each address."""

    def __init__(self) -> None:
        self._latest: dict[str, Flight] = {}
        self._tasks: set[asyncio.Task[FetchResult]] = set()

    def find(self, address: str, need: Need) -> Flight | None:
        """Return a flight whose answer will do."""
        flight = self._latest.get(address)
        return flight if flight is not None and flight.serves(need) else None

    def start(
        self,
        address: str,
        need: Need,
        sent: float,
        fetch: Coroutine[Any, Any, FetchResult],
        *,
        is_dated: bool = False,
    ) -> Flight:
        """Send a request that others may join; see `Flight`."""
        flight = Flight(need, sent, asyncio.create_task(fetch), is_dated=is_dated)
        self._latest[address] = flight
        self._tasks.add(flight.task)
        flight.task.add_done_callback(lambda _: self._landed(address, flight))
        return flight

    def _landed(self, address: str, flight: Flight) -> None:
        self._tasks.discard(flight.task)
        if not flight.task.cancelled():
            flight.task.exception()  # Or asyncio reports it, if no reader waits any more.
        if self._latest.get(address) is flight:
            del self._latest[address]

    async def close(self) -> None:
        """Give up every request under way."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks))
