"""Requests under way, shared by the reads that they are fresh enough for."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sketch.client.answers import ReadAnswer
from sketch.client.copies import is_newer
from sketch.client.filters import HeldFilter
from sketch.client.problems import Closed

__all__ = ["Flight", "Flights", "Need"]


@dataclass(frozen=True, slots=True)
class Need:
    """What the response to a read must satisfy.

    Attributes:
        filter: The filter that the read uses; None if there is no usable one.
        floor: The response must be the origin's, to a request sent after this time; None: any cache
            on the way may answer.
        fresh: What was not outdated at this time, or later, is within the bound by that alone.
        own: What this client had written until then must be in the response.
        covered: Whether the filter vouches for copies that it covers.
        seen: The tag of the client's copy; None if it has none.
    """

    filter: HeldFilter | None
    floor: float | None
    fresh: float
    own: float = -math.inf
    covered: bool = False
    seen: str | None = None

    @property
    def young(self) -> float:
        """What was current after this time is within the bound, and contains own writes."""
        return max(self.own, self.fresh)

    def is_met(self, since: float, tag: str | None) -> bool:
        """Whether a response satisfies it that was current at `since`."""
        if self.floor is None:
            return self.filter is not None and since >= self.filter.generated_at
        if since > self.floor:
            return True
        # Young enough; but only its version shows that it is not older than what was seen.
        return since > self.young and is_newer(tag, self.seen) is True


class FetchResult(NamedTuple):
    """A response, and when it was current; of one requested from the origin, when it was sent."""

    answer: ReadAnswer
    since: float


@dataclass(eq=False, slots=True)
class Flight:
    """One request under way.

    Attributes:
        sent: When, by the client's clock.
        is_dated: Whether only the response will show how old it is.
    """

    need: Need
    sent: float
    task: asyncio.Task[FetchResult]
    is_dated: bool
    _waiting: int = field(default=0, init=False)

    def serves(self, need: Need) -> bool:
        """Whether its response satisfies another read; of a dated one, whether it may.

        What any cache may answer serves the reads with the same filter. What the origin answers
        serves each read whose filter, or whose floor, is from before it was sent: a read never
        joins a request that is older than what it needs (docs/protocol.md).
        """
        if self.task.cancelling():
            return False
        if self.is_dated:
            return need.floor is not None and not self.task.done()
        if self.need.floor is None:
            return need.floor is None and need.filter is self.need.filter
        if need.floor is None:
            return need.filter is not None and self.sent > need.filter.generated_at
        return self.sent > need.floor

    async def landed(self) -> FetchResult:
        """Wait for the response; a request that no read waits for any more is cancelled.

        Raises:
            Closed: The client was closed meanwhile.
        """
        self._waiting += 1
        try:
            # Shielded: other reads may wait for the same request when this one is cancelled.
            return await asyncio.shield(self.task)
        except asyncio.CancelledError as error:
            # Either this reader was cancelled, or the request: only the latter means "closed".
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
        flight = Flight(need, sent, asyncio.create_task(fetch), is_dated)
        self._latest[address] = flight
        self._tasks.add(flight.task)
        flight.task.add_done_callback(lambda _: self._landed(address, flight))
        return flight

    def _landed(self, address: str, flight: Flight) -> None:
        self._tasks.discard(flight.task)
        if not flight.task.cancelled():
            flight.task.exception()  # Or asyncio reports it, if no reader waits any more.
        # A later flight to the same address may have replaced this one.
        if self._latest.get(address) is flight:
            del self._latest[address]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks))
