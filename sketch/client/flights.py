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
    """The requirements on the response to a read.

    Attributes:
        filter: The filter that the read uses; None if none is usable.
        floor: The response must come from the origin, to a request sent after this time; None: any
            cache on the way may answer.
        fresh: A response that was current at this time, or later, is within the bound.
        own_floor: The response must contain this client's writes up to this time.
        covered: Whether the filter vouches for copies that it covers.
        copy_tag: The tag of the client's copy; None if it has none.
    """

    filter: HeldFilter | None
    floor: float | None
    fresh: float
    own_floor: float = -math.inf
    covered: bool = False
    copy_tag: str | None = None

    @property
    def young(self) -> float:
        """A response current after this time is within the bound and contains own writes."""
        return max(self.own_floor, self.fresh)

    def is_met(self, since: float, tag: str | None) -> bool:
        """Whether a response that was current at `since` satisfies it."""
        if self.floor is None:
            return self.filter is not None and since >= self.filter.generated_at
        if since > self.floor:
            return True
        # Young enough; but only its version shows that it is not older than the copy.
        return since > self.young and is_newer(tag, self.copy_tag) is True


class FetchResult(NamedTuple):
    """A response, and when it was current; if requested from the origin, when it was sent."""

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
        """Whether its response satisfies another read; if dated, whether it can.

        A request that any cache may answer serves reads with the same filter. A request to the
        origin serves reads whose filter, or floor, precedes it: a read never joins a request that
        is too old for it (docs/protocol.md).
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

    async def wait(self) -> FetchResult:
        """Wait for the response; a request is cancelled when no read waits for it.

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
        flight.task.add_done_callback(lambda _: self._on_done(address, flight))
        return flight

    def _on_done(self, address: str, flight: Flight) -> None:
        self._tasks.discard(flight.task)
        if not flight.task.cancelled():
            flight.task.exception()  # Otherwise asyncio reports it if no reader waits.
        # A later flight to the same address may have replaced this one.
        if self._latest.get(address) is flight:
            del self._latest[address]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks))
