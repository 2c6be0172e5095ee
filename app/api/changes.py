"""``GET /v1/{database}/changes``: the change feed, as server-sent events or by long polling."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import aclosing
from dataclasses import dataclass
from time import monotonic
from typing import Final

from app.api.dependents import require_service
from app.api.following import POLL_S, EventFeed, Item, Page
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
"""Bytes of changes after which a page ends early."""

_BEGINNING: Final = "beginning"
_MAX_SEARCH_S: Final = 5.0
"""Time limit of the search for changes of a class among those of others, without a wait."""


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
        """Whether the requested database still exists, and was not recreated."""
        return self.directory.id_of(self.routed.database) == self.database_id

    async def filter(
        self, events: Sequence[tuple[Event, FeedPosition]]
    ) -> list[tuple[Event, FeedPosition]]:
        """Return the requested events that the sender may see.

        Raises:
            Unavailable: The existence of a class cannot be determined.
            SchemaRetired: The version that the request is pinned to is no longer served.
        """
        names = {event.class_name for event, _ in events}
        if self.class_name is not None:
            names &= {self.class_name}
        allowed = self._allowed(names)
        if allowed != names:
            # Another replica may just have created a class.
            await self.directory.refresh_if_missing(self.routed.database, *(names - allowed))
            allowed = self._allowed(names)
        access, database = self.routed.access, self.routed.database
        owned_until = {name: access.owned_until(database, name) for name in allowed}
        visible = [
            (event, position)
            for event, position in events
            if event.class_name in allowed
            and (
                (time := owned_until[event.class_name]) is None or was_made_after(event.data, time)
            )
        ]
        if self.routed.pinned is None or not visible:
            return visible
        return _rename_fields(await self.routed.find_pinned(), visible)

    def _allowed(self, names: AbstractSet[str]) -> set[str]:
        """Return the classes whose changes may be shown; others are dropped, or have owners now."""
        access, database = self.routed.access, self.routed.database
        return {name for name in names if access.may_read_all(database, name, by_anybody=False)}


def _rename_fields(
    schema: FormerSchema, events: Sequence[tuple[Event, FeedPosition]]
) -> list[tuple[Event, FeedPosition]]:
    """Return the events of the classes in a version, with that version's names of fields."""
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
        subscriptions = require_service(self._subscriptions, "is no change feed")
        subscriber = await self._subscriber(routed, parameters, subscriptions)
        routed.request.phases.end("parse")
        # Expired positions and feed failures are detected before the status is sent.
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
    """Require the permission for all future changes of a class, or of the whole database."""
    # The feed also shows past states, so a class that is public now is not enough.
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
    """Collect a page; the wait ends with the first visible change."""
    routed, limit, wait_s = subscriber.routed, parameters.limit, parameters.wait
    changes: list[bytes] = []
    size = 0
    start = monotonic()
    deadline = start + max(wait_s, _MAX_SEARCH_S)

    def may_continue() -> bool:
        has_room = len(changes) < limit and size < PAGE_BYTES
        return has_room and monotonic() < deadline and not subscription.ended

    while may_continue():
        remaining_s = 0.0 if changes else max(0.0, start + wait_s - monotonic())
        events = await subscription.next(min(remaining_s, POLL_S), limit - len(changes))
        await routed.revalidate()
        _require(routed, subscriber.class_name)
        visible = [event.data for event, _ in await subscriber.filter(events)]
        changes += visible
        size += sum(map(len, visible))
        if not events and not remaining_s:
            break
    routed.request.phases.end("feed")
    body = b'{"changes":[%b],"position":"%b"}'
    position = subscription.position.text.encode()
    return Response(200, [JSON_TYPE, NO_STORE], body % (b",".join(changes), position))


async def _events(
    subscriptions: Subscriptions, subscription: Subscription, subscriber: _Subscriber
) -> AsyncIterator[bytes]:
    async def read(_after: str, _limit: int, wait_s: float) -> Page[str]:
        try:
            events = await subscription.next(wait_s)
        except Unavailable:
            await asyncio.sleep(wait_s)
            events = []
        visible = await subscriber.filter(events)
        # If the database was dropped, the client reconnects, and gets a problem.
        is_last = subscription.ended or not subscriber.has_database
        items = [Item(position.text, event.data) for event, position in visible]
        return Page(items, subscription.position.text, is_last)

    feed = EventFeed("change", ("changes", "position"), read)
    events = feed.stream(subscriber.routed.request, Page([], subscription.position.text))
    try:
        async with aclosing(events):
            async for chunk in events:
                yield chunk
    finally:
        subscriptions.close(subscription)
