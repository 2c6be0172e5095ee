"""What clients follow from a position on: as server-sent events, or by long polling."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final, Generic, NamedTuple, TypeVar

import orjson

from app.api.responses import JSON_TYPE, NO_STORE, answer_events
from app.api.routed_request import RoutedRequest
from app.http.message import Request, Response
from app.http.negotiation import EVENT_STREAM, accepts_by_name
from mediator.base.errors import Invalid, Location, MediatorError, Unavailable

__all__ = [
    "POLL_S",
    "Followed",
    "Followers",
    "Item",
    "Page",
    "last_event_id",
    "stopped_event",
]

POLL_S: Final = 1.0
"""How soon it is seen that a client has gone."""

_HEARTBEAT_S: Final = 15.0

_MOST_FOLLOWERS: Final = 200
"""Clients that follow one kind of events at a time: each of them takes part of a server."""

_AT_ONCE: Final = 100
"""Items of one read for a stream of events."""

P = TypeVar("P")


class Item(NamedTuple):
    """Something that is followed: the id of its event, and what is shown of it, as JSON."""

    id: str
    document: bytes


class Page(NamedTuple, Generic[P]):
    """Items in their order, and the position behind them, whose text is the id of an event.

    After one that `is_last` none follow.
    """

    items: Sequence[Item]
    position: P
    is_last: bool = False


async def _unchecked() -> bytes:
    return b""


@dataclass(frozen=True, slots=True)
class Followed(Generic[P]):
    """What one request follows.

    Attributes:
        event: The name of the events, and of their kind.
        members: Names in the JSON of a page: of its items, and of its position.
        read: Reads what follows a position: so many at most, waiting some seconds for the first.
        check: Raises an error if what was read may not be shown any more; returns the event that
            ends the stream when nothing follows, or nothing if more may come. Unless given, what
            is read may be shown.
    """

    event: str
    members: tuple[str, str]
    read: Callable[[P, int, float], Awaitable[Page[P]]]
    check: Callable[[], Awaitable[bytes]] = _unchecked

    async def stream(
        self, request: Request, page: Page[P], goes_on: Callable[[], bool] = lambda: True
    ) -> AsyncGenerator[bytes, None]:
        """Yield server-sent events from a page on, and now and then the position to resume from.

        An error ends them: the client comes again, from what it has seen, and gets a problem.
        """
        sent_s = monotonic()
        try:
            # Also the position, so that a client resumes that loses the connection before an event.
            yield self._events(page) + _position_event(page)
            while goes_on() and not (page.is_last or request.is_disconnected):
                page = await self.read(page.position, _AT_ONCE, POLL_S)
                last = await self.check()
                if last and not page.items:
                    yield last
                    return
                chunk = self._events(page)
                if not chunk and monotonic() - sent_s >= _HEARTBEAT_S:
                    chunk = b": heartbeat\n" + _position_event(page)
                if chunk:
                    yield chunk
                    sent_s = monotonic()
        except MediatorError:
            return

    def _events(self, page: Page[P]) -> bytes:
        event = self.event.encode()
        return b"".join(
            b"id: %b\nevent: %b\ndata: %b\n\n" % (each.id.encode(), event, each.document)
            for each in page.items
        )

    def body(self, page: Page[P]) -> bytes:
        items, position = (name.encode() for name in self.members)
        shown = page.position if isinstance(page.position, int) else str(page.position)
        listed = b",".join(each.document for each in page.items)
        return b'{"%b":[%b],"%b":%b}' % (items, listed, position, orjson.dumps(shown))


@dataclass(eq=False)
class Followers:
    """The clients that follow something, by the kinds of its events.

    Attributes:
        have_ended: Whether the process is about to end: answers without an end are to end, too.
    """

    have_ended: bool = False
    _present: Counter[str] = field(default_factory=Counter, init=False)

    async def answer(
        self,
        routed: RoutedRequest,
        followed: Followed[P],
        after: P,
        limit: int,
        wait_s: float = 0.0,
    ) -> Response:
        """Answer events, if Accept names them, or else a page, for which it may wait (seconds).

        Raises:
            Unavailable: There are too many.
        """
        # What is gone is noticed before a status is sent.
        page = await followed.read(after, limit, 0.0)
        if accepts_by_name(routed.request.headers.get(b"accept", ""), EVENT_STREAM):
            return answer_events(self.follow(routed.request, followed, page))
        if wait_s and not page.items:
            page = await self._wait(routed, followed, page, limit, wait_s)
        return Response(200, [JSON_TYPE, NO_STORE], followed.body(page))

    def follow(
        self, request: Request, followed: Followed[P], page: Page[P]
    ) -> AsyncGenerator[bytes, None]:
        """Return the events of a page, and of what follows; raises `Unavailable` as `answer`."""
        self._check(followed.event)
        events = followed.stream(request, page, lambda: not self.have_ended)
        return self._counting(followed.event, events)

    async def _wait(
        self, routed: RoutedRequest, followed: Followed[P], page: Page[P], limit: int, wait_s: float
    ) -> Page[P]:
        self._check(followed.event)
        until = monotonic() + wait_s
        with self.counted(followed.event):
            while not page.items and (left_s := until - monotonic()) > 0 and not self.have_ended:
                page = await followed.read(page.position, limit, min(left_s, POLL_S))
                await routed.revalidate()
                await followed.check()
        return page

    def _check(self, kind: str) -> None:
        if self._present[kind] >= _MOST_FOLLOWERS:
            detail = f"Too many clients follow events of the kind {kind}."
            raise Unavailable(detail, system="service")

    @contextmanager
    def counted(self, kind: str) -> Iterator[None]:
        """Count one while it waits."""
        self._present[kind] += 1
        try:
            yield
        finally:
            self._present[kind] -= 1

    async def _counting(
        self, kind: str, events: AsyncGenerator[bytes, None]
    ) -> AsyncGenerator[bytes, None]:
        # In here: a generator that never starts would not reach its `finally`.
        with self.counted(kind):
            async with aclosing(events):
                async for chunk in events:
                    yield chunk


def stopped_event(detail: Any) -> bytes:
    """Return the last event of something that was stopped, with the reason."""
    return b"event: stopped\ndata: %b\n\n" % orjson.dumps({"detail": detail})


def last_event_id(routed: RoutedRequest, pattern: str) -> str | None:
    """Return the id of the last event that the client has received, if it sends one.

    Raises:
        Invalid: It is not of the form of a pattern.
    """
    text = routed.request.headers.get(b"last-event-id")
    if text and not re.fullmatch(pattern, text, re.ASCII):
        locations = [Location("Last-Event-ID", "must be the id of an event")]
        raise Invalid("This is no id of an event.", locations=locations)
    return text or None


def _position_event(page: Page[Any]) -> bytes:
    """Return a position without an event (HTML, section 9.2.6: no data, no event)."""
    return b"id: %b\n\n" % str(page.position).encode()
