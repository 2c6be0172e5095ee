"""Event feeds that clients follow from a position, by server-sent events or long polling."""

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
    "EventFeed",
    "Followers",
    "Item",
    "Page",
    "last_event_id",
    "stopped_event",
]

POLL_S: Final = 1.0
"""Time within which the disconnection of a client is detected."""

_HEARTBEAT_S: Final = 15.0

_MAX_FOLLOWERS: Final = 200
"""Clients that follow one kind of events at a time, as each uses resources of the server."""

_BATCH_ITEMS: Final = 100
"""Items of one read for a stream of events."""

P = TypeVar("P")


class Item(NamedTuple):
    """An item of a feed: the id of its event, and its JSON."""

    id: str
    document: bytes


class Page(NamedTuple, Generic[P]):
    """Items in order, and the position after them, whose text is the id of an event.

    No items follow a page that `is_last`.
    """

    items: Sequence[Item]
    position: P
    is_last: bool = False


async def _unchecked() -> bytes:
    return b""


@dataclass(frozen=True, slots=True)
class EventFeed(Generic[P]):
    """The feed that one request follows.

    Attributes:
        event: The name of the events, and of their kind.
        members: Names in the JSON of a page: of its items, and of its position.
        read: Reads a page after a position, with a limit of items and of seconds to wait for one.
        check: Raises an error if the items may no longer be shown; returns the event that ends the
            stream once no items follow, or no bytes if more can come. By default, all items may be
            shown.
    """

    event: str
    members: tuple[str, str]
    read: Callable[[P, int, float], Awaitable[Page[P]]]
    check: Callable[[], Awaitable[bytes]] = _unchecked

    async def stream(
        self, request: Request, page: Page[P], is_open: Callable[[], bool] = lambda: True
    ) -> AsyncGenerator[bytes, None]:
        """Yield server-sent events from a page on, and regularly the position to resume from.

        An error ends them: the client reconnects from its last position, and gets a problem.
        """
        last_sent_s = monotonic()
        try:
            # With the position, so that a client can resume if it disconnects before an event.
            yield self._events(page) + _position_event(page)
            while is_open() and not (page.is_last or request.is_disconnected):
                page = await self.read(page.position, _BATCH_ITEMS, POLL_S)
                final_event = await self.check()
                if final_event and not page.items:
                    yield final_event
                    return
                chunk = self._events(page)
                if not chunk and monotonic() - last_sent_s >= _HEARTBEAT_S:
                    chunk = b": heartbeat\n" + _position_event(page)
                if chunk:
                    yield chunk
                    last_sent_s = monotonic()
        except MediatorError:
            return

    def _events(self, page: Page[P]) -> bytes:
        event = self.event.encode()
        return b"".join(
            b"id: %b\nevent: %b\ndata: %b\n\n" % (item.id.encode(), event, item.document)
            for item in page.items
        )

    def body(self, page: Page[P]) -> bytes:
        items, position = (name.encode() for name in self.members)
        position_value = page.position if isinstance(page.position, int) else str(page.position)
        documents = b",".join(item.document for item in page.items)
        return b'{"%b":[%b],"%b":%b}' % (items, documents, position, orjson.dumps(position_value))


@dataclass(eq=False)
class Followers:
    """The clients that follow feeds, by the kinds of events.

    Attributes:
        is_stopping: Whether the process is shutting down, which ends endless answers.
    """

    is_stopping: bool = False
    _counts: Counter[str] = field(default_factory=Counter, init=False)

    async def answer(
        self,
        routed: RoutedRequest,
        feed: EventFeed[P],
        after: P,
        limit: int,
        wait_s: float = 0.0,
    ) -> Response:
        """Answer events if Accept names them, otherwise a page, for which to wait `wait_s`.

        Raises:
            Unavailable: There are too many followers.
        """
        # Expired positions are detected before the status is sent.
        page = await feed.read(after, limit, 0.0)
        if accepts_by_name(routed.request.headers.get(b"accept", ""), EVENT_STREAM):
            return answer_events(self.follow(routed.request, feed, page))
        if wait_s and not page.items:
            page = await self._wait(routed, feed, page, limit, wait_s)
        return Response(200, [JSON_TYPE, NO_STORE], feed.body(page))

    def follow(
        self, request: Request, feed: EventFeed[P], page: Page[P]
    ) -> AsyncGenerator[bytes, None]:
        """Return the events of a page and of later ones; raise `Unavailable` like `answer`."""
        self._check(feed.event)
        events = feed.stream(request, page, lambda: not self.is_stopping)
        return self._count_follower(feed.event, events)

    async def _wait(
        self, routed: RoutedRequest, feed: EventFeed[P], page: Page[P], limit: int, wait_s: float
    ) -> Page[P]:
        self._check(feed.event)
        deadline = monotonic() + wait_s
        with self.counted(feed.event):
            while (
                not page.items
                and (remaining_s := deadline - monotonic()) > 0
                and not self.is_stopping
            ):
                page = await feed.read(page.position, limit, min(remaining_s, POLL_S))
                await routed.revalidate()
                await feed.check()
        return page

    def _check(self, kind: str) -> None:
        if self._counts[kind] >= _MAX_FOLLOWERS:
            detail = f"Too many clients follow events of the kind {kind}."
            raise Unavailable(detail, system="service")

    @contextmanager
    def counted(self, kind: str) -> Iterator[None]:
        """Count a follower while it waits."""
        self._counts[kind] += 1
        try:
            yield
        finally:
            self._counts[kind] -= 1

    async def _count_follower(
        self, kind: str, events: AsyncGenerator[bytes, None]
    ) -> AsyncGenerator[bytes, None]:
        # Counted in here: a generator that never starts would not reach its `finally`.
        with self.counted(kind):
            async with aclosing(events):
                async for chunk in events:
                    yield chunk


def stopped_event(detail: Any) -> bytes:
    """Return the last event of a stopped view or query, with the reason."""
    return b"event: stopped\ndata: %b\n\n" % orjson.dumps({"detail": detail})


def last_event_id(routed: RoutedRequest, pattern: str) -> str | None:
    """Return the Last-Event-ID of a client, if any.

    Raises:
        Invalid: It does not match the pattern.
    """
    text = routed.request.headers.get(b"last-event-id")
    if text and not re.fullmatch(pattern, text, re.ASCII):
        locations = [Location("Last-Event-ID", "must be the id of an event")]
        raise Invalid("The Last-Event-ID is malformed.", locations=locations)
    return text or None


def _position_event(page: Page[Any]) -> bytes:
    """Return a position that triggers no event (HTML, section 9.2.6: no data, no event)."""
    return b"id: %b\n\n" % str(page.position).encode()
