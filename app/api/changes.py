"""``GET /v1/{database}/changes``: the change feed, as server-sent events or by long polling."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import aclosing
from dataclasses import dataclass
from time import monotonic
from typing import Final

from app.api.dependents import required
from app.api.following import POLL_S, Followed, Item, Page
from app.api.models.reads import ChangesParameters
from app.api.resources import Directory
from app.api.responses import JSON_TYPE, NO_STORE, answer_events
from app.api.routed_request import RoutedRequest
from app.http.message import Response, forbid_body
from app.http.negotiation import EVENT_STREAM, accepts_by_name
from app.http.validation import parse_parameters
from mediator.access.model import Scope
from mediator.base.errors import Unavailable
from mediator.changes.feed import Event
from mediator.changes.former_owners import was_made_after
from mediator.changes.naming import named_as
from mediator.changes.position import FeedPosition
from mediator.changes.subscriptions import Subscription, Subscriptions
from mediator.routing.former_schemas import FormerSchema

__all__ = ["PAGE_BYTES", "ChangesRoute"]

PAGE_BYTES: Final = 2**22
"""Bytes of changes after which a page ends, though it has fewer than were requested."""

_BEGINNING: Final = "beginning"
_LONGEST_SEARCH_S: Final = 5.0
"""How long changes of a class are looked for among those of others, if there is no wait."""


@dataclass(frozen=True, slots=True)
class _Subscriber:
    """A request for the changes of a database, or of one of its classes, after a position."""

    routed: RoutedRequest
    directory: Directory
    database_id: str
    class_name: str | None
    position: FeedPosition

    @property
    def has_database(self) -> bool:
        """Whether the database is there, and is still the one that was requested."""
        return self.directory.id_of(self.routed.database) == self.database_id

    async def shown(
        self, events: Sequence[tuple[Event, FeedPosition]]
    ) -> list[tuple[Event, FeedPosition]]:
        """Return the events that are requested and may be seen.

        Raises:
            Unavailable: It cannot be found out whether a class exists.
            SchemaRetired: The version that the request is pinned to is not served any more.
        """
        names = {event.class_name for event, _ in events}
        if self.class_name is not None:
            names &= {self.class_name}
        allowed = self._allowed(names)
        if allowed != names:
            # Another replica may have made a class a moment ago.
            await self.directory.refresh_if_missing(self.routed.database, *(names - allowed))
            allowed = self._allowed(names)
        access, database = self.routed.access, self.routed.database
        since = {name: access.owned_until(database, name) for name in allowed}
        seen = [
            (event, position)
            for event, position in events
            if event.class_name in allowed
            and ((until := since[event.class_name]) is None or was_made_after(event.data, until))
        ]
        if self.routed.pinned is None or not seen:
            return seen
        return _named(await self.routed.find_pinned(), seen)

    def _allowed(self, names: AbstractSet[str]) -> set[str]:
        """Return the classes whose changes may be shown; others may be gone, or have got owners."""
        access, database = self.routed.access, self.routed.database
        return {name for name in names if access.may_read_all(database, name, by_anybody=False)}


def _named(
    schema: FormerSchema, events: Sequence[tuple[Event, FeedPosition]]
) -> list[tuple[Event, FeedPosition]]:
    """Return the events of classes that a version has, with its names of their fields."""
    names = schema.names
    return [
        (named_as(event, names[event.class_name].former), position)
        for event, position in events
        if event.class_name in names
    ]


@dataclass(eq=False)
class ChangesRoute:
    _directory: Directory
    _subscriptions: Subscriptions | None

    async def get(self, routed: RoutedRequest) -> Response:
        forbid_body(routed.request)
        parameters = parse_parameters(ChangesParameters, routed.request.query)
        _require(routed, parameters.class_name)
        subscriptions = required(self._subscriptions, "is no change feed")
        subscriber = await self._subscriber(routed, parameters, subscriptions)
        routed.request.phases.end("parse")
        # A position that is gone, or a feed without an answer, is noticed before a status is sent.
        subscription = await subscriptions.open(subscriber.database_id, subscriber.position)
        if accepts_by_name(routed.request.headers.get(b"accept", ""), EVENT_STREAM):
            return answer_events(_events(subscriptions, subscription, subscriber))
        try:
            return await _page(subscription, subscriber, parameters)
        finally:
            subscriptions.close(subscription)

    async def _subscriber(
        self, routed: RoutedRequest, parameters: ChangesParameters, subscriptions: Subscriptions
    ) -> _Subscriber:
        database, class_name = routed.database, parameters.class_name
        database_id = (await self._directory.database(database)).id
        if class_name is not None:
            await self._directory.find(database, class_name, routed.access, routed.pinned)
        after, name = parameters.after, "after"
        if last := routed.request.headers.get(b"last-event-id"):
            after, name = last, "Last-Event-ID"
        if after is None:
            position = await subscriptions.now(database_id)
        elif after == _BEGINNING:
            position = await subscriptions.beginning(database_id)
        else:
            position = FeedPosition.parse(after, name)
        return _Subscriber(routed, self._directory, database_id, class_name, position)


def _require(routed: RoutedRequest, class_name: str | None) -> None:
    """Return if all changes of a class, or of the whole database, may be shown from now on."""
    # The feed shows what was, and not only what is: that a class is public is not enough.
    routed.access.require(Scope.READ, routed.database, class_name, by_anybody=False)
    for name in _classes_of(routed, class_name):
        routed.access.require_changes(routed.database, name)


def _classes_of(routed: RoutedRequest, class_name: str | None) -> Iterable[str]:
    if class_name is not None:
        return (class_name,)
    route = routed.plane.model.databases.get(routed.database)
    return route.classes if route is not None else ()


async def _page(
    subscription: Subscription, subscriber: _Subscriber, parameters: ChangesParameters
) -> Response:
    """Collect a page; the wait ends with the first change that is shown."""
    routed, limit, wait_s = subscriber.routed, parameters.limit, parameters.wait
    shown: list[bytes] = []
    size = 0
    started = monotonic()
    latest = started + max(wait_s, _LONGEST_SEARCH_S)

    def goes_on() -> bool:
        has_room = len(shown) < limit and size < PAGE_BYTES
        return has_room and monotonic() < latest and not subscription.ended

    while goes_on():
        left_s = 0.0 if shown else max(0.0, started + wait_s - monotonic())
        events = await subscription.next(min(left_s, POLL_S), limit - len(shown))
        await routed.revalidate()
        _require(routed, subscriber.class_name)
        more = [event.data for event, _ in await subscriber.shown(events)]
        shown += more
        size += sum(map(len, more))
        if not events and not left_s:
            break
    routed.request.phases.end("feed")
    body = b'{"changes":[%b],"position":"%b"}'
    position = subscription.position.text.encode()
    return Response(200, [JSON_TYPE, NO_STORE], body % (b",".join(shown), position))


async def _events(
    subscriptions: Subscriptions, subscription: Subscription, subscriber: _Subscriber
) -> AsyncIterator[bytes]:
    async def read(_after: str, _limit: int, wait_s: float) -> Page[str]:
        try:
            events = await subscription.next(wait_s)
        except Unavailable:
            await asyncio.sleep(wait_s)
            events = []
        shown = await subscriber.shown(events)
        # A client of a database that was dropped comes again, and gets a problem.
        is_last = subscription.ended or not subscriber.has_database
        items = [Item(position.text, event.data) for event, position in shown]
        return Page(items, subscription.position.text, is_last)

    followed = Followed("change", ("changes", "position"), read)
    events = followed.stream(subscriber.routed.request, Page([], subscription.position.text))
    try:
        async with aclosing(events):
            async for chunk in events:
                yield chunk
    finally:
        subscriptions.close(subscription)
