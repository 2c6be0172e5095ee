"""Streams of server-sent events (HTML, section 9.2) that go on until their client has gone."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Final, TypeVar

from app.api.models.common import RESULT_POSITION
from app.http.message import Request
from mediator.base.errors import Invalid, Location, MediatorError, Unavailable
from mediator.model.result_position import ResultPosition

__all__ = [
    "MOST_FOLLOWERS",
    "POLL_S",
    "Followers",
    "events_of",
    "parse_number",
    "parse_position",
    "position_event",
]

POLL_S: Final = 1.0
"""How soon it is seen that a client has gone."""

MOST_FOLLOWERS: Final = 200
"""Clients that follow one kind of results at a time: each of them takes part of a Redis."""

_HEARTBEAT_S: Final = 15.0
_NUMBER: Final = re.compile(r"[0-9]{1,15}", re.ASCII)
_POSITION: Final = re.compile(RESULT_POSITION, re.ASCII)
_Found = TypeVar("_Found")


async def events_of(
    request: Request,
    next_events: Callable[[], Awaitable[bytes]],
    position: Callable[[], bytes],
    goes_on: Callable[[], bool],
    first: bytes = b"",
) -> AsyncGenerator[bytes, None]:
    """Yield events, and now and then the position, so that a client resumes from there.

    An error ends them: the client comes again, from what it has seen, and gets a problem.

    Args:
        next_events: Waits for events, `POLL_S` at most.
        position: Where the stream is.
        goes_on: Whether there may be more.
        first: Events that are there already.
    """
    sent_s = monotonic()
    try:
        if first:
            yield first
        # So that a client that loses the connection before any event resumes from here.
        yield position_event(position())
        while goes_on() and not request.is_disconnected:
            chunk = await next_events()
            if not chunk and monotonic() - sent_s >= _HEARTBEAT_S:
                chunk = b": heartbeat\n" + position_event(position())
            if chunk:
                yield chunk
                sent_s = monotonic()
    except MediatorError:
        return


def parse_number(text: str) -> int:
    """Read the Last-Event-ID of events that are numbered; raises `Invalid`."""
    if not _NUMBER.fullmatch(text):
        locations = [Location("Last-Event-ID", "must be the id of an event")]
        raise Invalid("This is no id of an event.", locations=locations)
    return int(text)


def parse_position(text: str) -> ResultPosition:
    """Read the Last-Event-ID of a result; raises `Invalid`."""
    if not _POSITION.fullmatch(text):
        locations = [Location("Last-Event-ID", "must be the id of an event")]
        raise Invalid("This is no id of a result.", locations=locations)
    return ResultPosition.parse(text)


def position_event(position: bytes) -> bytes:
    """Return a position without an event (HTML, section 9.2.6: no data, no event)."""
    return b"id: %b\n\n" % position


@dataclass(eq=False)
class Followers:
    """The clients that follow something, by what that is."""

    _what: str
    _present: int = field(default=0, init=False)

    def check(self) -> None:
        """Raises `Unavailable` if one more is too many."""
        if self._present >= MOST_FOLLOWERS:
            raise Unavailable(f"Too many clients follow {self._what}.", system="coordination")

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count one while it waits."""
        self._present += 1
        try:
            yield
        finally:
            self._present -= 1

    async def wait(
        self,
        read: Callable[[float], Awaitable[Sequence[_Found]]],
        wait_s: float,
        goes_on: Callable[[], bool],
        permit: Callable[[], Awaitable[None]],
    ) -> Sequence[_Found]:
        """Read, with how long that may wait, until something is found or the time is over.

        Args:
            read: Waits for something, for some seconds at most.
            wait_s: For how long all of it may wait.
            goes_on: Whether there may be more.
            permit: Raises an error if what is found may not be shown any more.
        """
        until = monotonic() + wait_s
        found: Sequence[_Found] = []
        with self.counted():
            while not found and (left_s := until - monotonic()) > 0 and goes_on():
                found = await read(min(left_s, POLL_S))
                await permit()
        return found

    async def counting(self, events: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        """Yield events, and count one until they end."""
        # In here: a generator that never starts would not reach its `finally`.
        with self.counted():
            async with aclosing(events):
                async for chunk in events:
                    yield chunk
