"""The holder of a database's views: the one replica that evaluates them under the lease.

It keeps everything in memory. After any event (a new holder, a lost feed, a schema change), it
reloads everything and publishes the difference to the last published result as one delta.

Loading starts at a position of the feed, reads all objects, waits until the feed has every write
acknowledged by then, and applies the changes after that position: changes that were already read
have no effect, as groups know their versions. From then on the views are at a position.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from mediator.base.clock import Clock
from mediator.base.errors import Invalid
from mediator.base.holding import Holder
from mediator.base.lease import Lease, Leasing
from mediator.base.slices import Slices
from mediator.changes.document import change_from
from mediator.changes.feed import Feed
from mediator.changes.position import FeedPosition
from mediator.changes.subscriptions import Subscription, Subscriptions
from mediator.data_plane.port import DataPlane, is_outdated, pages
from mediator.routing.model import ClassRoute, DatabaseRoute
from mediator.views.evaluation import MAX_BYTES, MAX_OBJECTS, Evaluation
from mediator.views.parser import parse_view
from mediator.views.results import (
    BUILDING,
    READY,
    STOPPED,
    Publication,
    StoredView,
    ViewKey,
    ViewResults,
    ViewState,
    difference,
)
from mediator.views.view import View

__all__ = ["HolderContext", "ViewHolder"]

POLL_S: Final = 0.25
"""How soon a new view or a schema change is noticed, in seconds."""


class _NewView(NamedTuple):
    """A view that was not evaluated yet; `is_first`: not by a former holder either."""

    view: View
    is_first: bool


class _OutOfDate(Exception):
    """Everything must be reloaded."""


@dataclass(frozen=True, slots=True)
class HolderContext:
    """The context shared by the holders of all databases."""

    plane: DataPlane
    feed: Feed
    subscriptions: Subscriptions
    results: ViewResults
    leases: Leasing
    replica: str
    clock: Clock


@dataclass(eq=False)
class ViewHolder:
    """Holds the views of one database, given by its id, while it has the lease."""

    _context: HolderContext
    _database: str

    async def run(self) -> None:
        """Hold until the process is about to end, despite errors."""
        context, id_ = self._context, self._database
        name, description = f"views:{id_}", f"the views of {id_}"
        holder = Holder(context.leases, context.replica, name, description, self._has_ended)
        await holder.run(self._work)

    def _has_ended(self) -> bool:
        return self._context.subscriptions.ended

    async def _work(self, lease: Lease) -> None:
        while not self._has_ended():
            with suppress(_OutOfDate):
                route = self._context.plane.model.by_id.get(self._database)
                if route is None:
                    return
                await _Session(self._context, route, lease).run()
            await asyncio.sleep(POLL_S)


@dataclass(eq=False)
class _Session:
    """The views of a database from one load to the next."""

    _context: HolderContext
    _route: DatabaseRoute
    _lease: Lease
    _evaluation: Evaluation = field(default_factory=lambda: Evaluation({}), init=False)
    _view_ids: set[str] = field(default_factory=set, init=False)
    _published: FeedPosition | None = field(default=None, init=False)
    _sequence: int = field(default=0, init=False)
    _revision: int = field(default=-1, init=False)
    _checked_at: float = field(default=0.0, init=False)

    async def run(self) -> None:
        """Load the views, and follow the feed.

        Raises:
            _OutOfDate: The schema has changed, or a new view needs classes that are not loaded.
            PositionGone: The feed was lost.
        """
        context, id_ = self._context, self._route.id
        self._sequence, self._revision = await context.results.published(id_)
        views = await self._new_views()
        if not views:
            await self._wait_for_revision()
            return
        names = sorted({name for view in views.values() for name in view.view.class_names})
        self._evaluation = Evaluation({name: self._route.classes[name] for name in names})
        position = await context.subscriptions.now(id_)
        subscription = await context.subscriptions.open(id_, position)
        try:
            await self._load(subscription, {id_: new.view for id_, new in views.items()})
            await self._build(subscription, views)
            while not context.subscriptions.ended:
                await self._check_views(subscription)
                await self._apply(subscription)
                # Changes that were read since a schema change have the names of the new schema.
                self._check_schema()
                await self._publish(subscription.position, self._take_publications())
                await self._check_size(self._evaluation.views)
        finally:
            context.subscriptions.close(subscription)

    async def _wait_for_revision(self) -> None:
        """Wait until a view is created or removed."""
        context = self._context
        while not context.subscriptions.ended:
            if (await context.results.published(self._route.id)).revision != self._revision:
                return
            await asyncio.sleep(POLL_S)
            self._check_schema()

    async def _new_views(self) -> dict[str, _NewView]:
        """Return the views that are not known yet; stop those that the schema does not allow."""
        results, id_ = self._context.results, self._route.id
        ids = await results.ids(id_)
        for dropped in self._view_ids - ids:
            self._evaluation.discard(dropped)
        definitions = await results.views(id_, ids - self._view_ids)
        views, refused = self._parse(definitions)
        if refused and await is_outdated(self._context.plane, self._route):
            self._check_schema()
            views, refused = self._parse(definitions)
        self._view_ids = ids
        if refused:
            await self._publish(None, refused)
        return views

    def _parse(
        self, definitions: Mapping[str, StoredView]
    ) -> tuple[dict[str, _NewView], dict[str, Publication]]:
        """Parse views that are not stopped; return them, and the refused ones."""
        views: dict[str, _NewView] = {}
        refused: dict[str, Publication] = {}
        for id_, definition in definitions.items():
            if definition.state.name == STOPPED:
                continue
            try:
                view = parse_view(definition.document, self._route.schema)
            except Invalid as error:
                refused[id_] = _stopped(_reason(error))
            else:
                views[id_] = _NewView(view, definition.state.name == BUILDING)
        return views, refused

    async def _load(self, subscription: Subscription, views: Mapping[str, View]) -> None:
        """Read all objects, and apply changes until the feed has everything that was read."""
        context, routes = self._context, self._evaluation.routes
        for name in routes:
            objects = self._evaluation.objects_of(name)
            async for page in pages(context.plane, self._route.schema.database, name):
                for outcome in page:
                    objects.put(outcome)
                await self._check_size(views)
        tick = await context.feed.tick()
        while await self._is_behind(tick, routes.values()):
            await self._apply(subscription)
        end = await context.subscriptions.now(self._route.id)
        while not subscription.position.has_reached(end):
            await self._apply(subscription)
        self._check_schema()

    async def _is_behind(self, tick: int, routes: Iterable[ClassRoute]) -> bool:
        until = await self._context.feed.relayed_until(self._route.id)
        systems = {fragment.system for route in routes for fragment in route.fragments}
        return any(until.get(system, 0) < tick for system in systems)

    async def _apply(self, subscription: Subscription) -> None:
        """Apply changes of the feed, waiting a little for the first."""
        slices = Slices(self._context.clock)
        for event, _ in await subscription.next(POLL_S):
            self._evaluation.apply(change_from(event.data, self._route.id))
            await slices.checkpoint()

    async def _build(self, subscription: Subscription, views: Mapping[str, _NewView]) -> None:
        """Evaluate views over the loaded objects; publish the differences to published results."""
        evaluation, results = self._evaluation, self._context.results
        publications: dict[str, Publication] = {}
        slices = Slices(self._context.clock)
        for id_, (view, is_first) in views.items():
            for _ in evaluation.add(id_, view):
                await slices.checkpoint()
            if id_ not in evaluation.stopped:
                before = {} if is_first else await results.rows(ViewKey(self._route.id, id_))
                rows = difference(before, evaluation.rows(id_))
                publications[id_] = Publication(ViewState(READY), rows, is_first)
        await self._publish(subscription.position, publications | self._take_publications())

    async def _check_views(self, subscription: Subscription) -> None:
        """Check periodically for created or removed views."""
        now = self._context.clock.monotonic()
        if now - self._checked_at < POLL_S:
            return
        self._checked_at = now
        revision = (await self._context.results.published(self._route.id)).revision
        if revision != self._revision:
            self._revision = revision
            views = await self._new_views()
            loaded = self._evaluation.routes.keys()
            if any(new.view.class_names - loaded for new in views.values()):
                raise _OutOfDate
            await self._build(subscription, views)

    def _check_schema(self) -> None:
        route = self._context.plane.model.by_id.get(self._route.id)
        if route is self._route:
            return
        loaded = self._evaluation.routes.items()
        if route is None or not all(
            _are_read_alike(old, route.classes.get(name)) for name, old in loaded
        ):
            raise _OutOfDate
        self._route = route

    async def _check_size(self, views: Mapping[str, View]) -> None:
        """Stop the views of the largest class if the objects exceed the bounds."""
        name = self._evaluation.oversized()
        if name is not None:
            detail = (
                f"The classes of this database's views have more than {MAX_OBJECTS:,} objects, or"
                f" {MAX_BYTES:,} bytes; the largest is {name}."
            )
            affected = [id_ for id_, view in views.items() if name in view.class_names]
            await self._publish(None, dict.fromkeys(affected, _stopped(detail)))
            raise _OutOfDate

    def _take_publications(self) -> dict[str, Publication]:
        """Return the changes of results, and the stopped views."""
        publications = {
            id_: Publication(None, rows) for id_, rows in self._evaluation.take().items()
        }
        stopped, self._evaluation.stopped = self._evaluation.stopped, {}
        return publications | {id_: _stopped(detail) for id_, detail in stopped.items()}

    async def _publish(
        self, position: FeedPosition | None, publications: Mapping[str, Publication]
    ) -> None:
        """Publish if there is anything new; position None: unchanged."""
        if not publications and position == self._published:
            return
        await self._context.results.publish(
            self._route.id,
            self._lease,
            self._sequence,
            "" if position is None else position.text,
            publications,
        )
        self._sequence += 1
        self._published = position or self._published


def _stopped(detail: str) -> Publication:
    return Publication(ViewState(STOPPED, detail), [])


def _reason(error: Invalid) -> str:
    [first, *_] = error.locations
    return f"The schema no longer allows the view: {first.pointer} {first.detail}."


def _are_read_alike(one: ClassRoute, other: ClassRoute | None) -> bool:
    """Whether two routes of a class read the same from the feed."""
    return one is other or (
        other is not None and one.schema == other.schema and _storage_of(one) == _storage_of(other)
    )


def _storage_of(route: ClassRoute) -> list[tuple[str, str, Mapping[str, tuple[str, ...]]]]:
    """Return how systems store a class, which differs if it was recreated or moved."""
    return [(fragment.system, fragment.stored_as, fragment.groups) for fragment in route.fragments]
