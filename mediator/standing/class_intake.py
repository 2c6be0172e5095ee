"""Classes as streams: tuples of changed objects, from the change feed.

A change has only the touched fields. When the feed has a change, the object is therefore read from
its systems, and the tuple has all attributes as of then: after this change, or after a later one.
Several changes that are read at once, or that an earlier tuple already has, make one tuple: a write
to several cache groups arrives as several changes. A deletion makes none.

A tuple is identified by the versions of its groups, which the log of batches keeps with it. The
next holder, which may read the same changes again, therefore does not repeat logged tuples.

The number of tuples does not tell whether more changes are waiting: most may be of other classes.
The feed is therefore read up to its end at the start of the read.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final, NamedTuple

from mediator.base.errors import MediatorError, NotFound
from mediator.changes.document import change_from
from mediator.changes.position import FeedPosition
from mediator.changes.subscriptions import Subscription, Subscriptions
from mediator.data_plane.port import DataPlane
from mediator.model.change import Change
from mediator.model.operations import Get, Outcome
from mediator.routing.model import DatabaseRoute
from mediator.schema.tree import ClassSchema
from mediator.schema.values import encoder
from mediator.standing.alignment import InputPage
from mediator.standing.query import Source
from mediator.standing.results import LoggedTuple
from mediator.standing.sources import attributes_of_class

__all__ = ["ClassIntake"]

_MAX_OBJECTS: Final = 10_000
"""Objects whose last tuple is remembered: changes that are read again are recent."""

TAKEN_BYTES: Final = 2**20
"""Bytes of changes, other classes included, after which a batch reads no more."""

_WAIT_S: Final = 0.1
"""How long a change may take from the feed to this process."""

_US: Final = 1_000_000


class _Object(NamedTuple):
    class_name: str
    id: str


@dataclass(eq=False)
class ClassIntake:
    """Makes tuples of the classes that queries read.

    Attributes:
        numbers: The number of the last tuple made, by relation.
    """

    _plane: DataPlane
    _subscriptions: Subscriptions
    _route: DatabaseRoute
    _classes: frozenset[str]
    numbers: dict[str, int]
    _subscription: Subscription | None = field(default=None, init=False)
    _position: str = field(default="", init=False)
    _pending: deque[LoggedTuple] = field(default_factory=deque, init=False)
    _last_versions: OrderedDict[_Object, str] = field(default_factory=OrderedDict, init=False)
    _taken_until_s: float = field(default=-inf, init=False)
    _read_until_s: float = field(default=-inf, init=False)

    async def open(self, position: str, latest_s: float) -> None:
        """Follow the feed from a position.

        Args:
            latest_s: The latest time of all tuples taken, in seconds since 1970. A former holder
                may have read the feed up to there, and more at once than this one.

        Raises:
            PositionGone: Changes after it are no longer kept.
        """
        parsed = FeedPosition.parse(position, "position")
        self._subscription = await self._subscriptions.open(self._route.id, parsed)
        self._position = position
        self._taken_until_s = latest_s

    def close(self) -> None:
        if self._subscription is not None:
            self._subscriptions.close(self._subscription)

    def restore(self, tuples: Iterable[LoggedTuple]) -> None:
        """Register logged tuples."""
        for item in tuples:
            source = Source.of(item.stream)
            if source.kind == "class":
                self._note(_Object(source.name, item.values["id"]), item.versions)

    @property
    def position(self) -> str:
        """The position of the feed up to which all tuples were taken; empty: not followed."""
        return self._position

    async def read(self, limit: int) -> InputPage:
        """Return tuples not taken yet; if all were taken, read the feed.

        Args:
            limit: Tuples after which no more changes are read.

        Raises:
            PositionGone: Changes are no longer kept.
        """
        has_all = self._subscription is None
        if self._subscription is not None and not self._pending:
            self._position = self._subscription.position.text
            has_all = await self._read_feed(self._subscription, limit)
        until_s = inf if has_all else max(self._read_until_s, self._taken_until_s)
        return InputPage(list(self._pending), until_s)

    def take(self, last: Mapping[str, int]) -> None:
        """Forget published tuples, up to a number by relation."""
        while self._pending and self._pending[0].number <= last.get(self._pending[0].stream, 0):
            self._pending.popleft()
        if not self._pending and self._subscription is not None:
            self._position = self._subscription.position.text

    async def _read_feed(self, subscription: Subscription, limit: int) -> bool:
        """Read changes up to the current end of the feed, or as many as a batch takes.

        Returns:
            Whether the end was reached.
        """
        end, times, size = await self._subscriptions.now(self._route.id), list[float](), 0
        while True:
            wait_s = 0.0 if subscription.position.has_reached(end) else _WAIT_S
            events = [event for event, _ in await subscription.next(wait_s)]
            changes = [change_from(event.data, self._route.id) for event in events]
            await self._take_changes(changes)
            times += (change.time_us / _US for change in changes)
            size += sum(len(event.data) for event in events)
            has_all = subscription.position.has_reached(end)
            if has_all or not events or size >= TAKEN_BYTES or len(self._pending) >= limit:
                self._read_until_s = max(times, default=self._read_until_s)
                return has_all

    async def _take_changes(self, changes: Iterable[Change]) -> None:
        """Make tuples of the current state of the changed objects."""
        latest: dict[_Object, Change] = {}
        for change in changes:
            if change.class_name in self._classes and change.after is not None:
                latest[_Object(change.class_name, change.object_id)] = change
        if not latest:
            return
        database = self._route.schema.database
        outcomes = await self._plane.batch(
            [Get(database, *object_) for object_ in latest], whole=True
        )
        for (object_, change), outcome in zip(latest.items(), outcomes, strict=True):
            if isinstance(outcome, NotFound):
                continue  # it was deleted meanwhile
            if isinstance(outcome, MediatorError):
                raise outcome
            self._add_tuple(object_, change, outcome)

    def _add_tuple(self, object_: _Object, change: Change, outcome: Outcome) -> None:
        versions = ",".join(f"{name}:{v}" for name, v in sorted(outcome.versions.items()) if v)
        if self._last_versions.get(object_) == versions:
            return
        self._note(object_, versions)
        relation = Source("class", object_.class_name).relation
        number = self.numbers[relation] = self.numbers[relation] + 1
        class_ = self._route.schema.classes[object_.class_name]
        values = {"id": object_.id, **_encode(class_, outcome.values or {})}
        time_s = change.time_us / _US
        self._pending.append(LoggedTuple(relation, time_s, values, number, versions))

    def _note(self, object_: _Object, versions: str) -> None:
        self._last_versions[object_] = versions
        self._last_versions.move_to_end(object_)
        if len(self._last_versions) > _MAX_OBJECTS:
            self._last_versions.popitem(last=False)


def _encode(class_: ClassSchema, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of an object in their JSON form."""
    encoded = {}
    for name in attributes_of_class(class_).keys() & values.keys():
        encode, value = encoder(class_.fields[name]), values[name]
        encoded[name] = value if encode is None or value is None else encode(value)
    return encoded
